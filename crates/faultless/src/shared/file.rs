//! A backing that is a file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use faultless_base::sys::user_mmu::Backing;

/// A file whose bytes are read when they are faulted in. Bytes written to the region stay in the region.
pub struct FileBacking(File);

impl FileBacking {
    /// Reads from this file; offset 0 of the region is offset 0 of the file.
    pub fn new(file: File) -> Self {
        Self(file)
    }
}

impl Backing for FileBacking {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
        buffer[done..].fill(0);
        Ok(())
    }
}
