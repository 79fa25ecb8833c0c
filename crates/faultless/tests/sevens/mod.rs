//! A backing of one byte.

use faultless::region::Backing;

/// Each of its bytes is 7.
pub struct Sevens;

impl Backing for Sevens {
    fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        buffer.fill(7);
        Ok(())
    }
}
