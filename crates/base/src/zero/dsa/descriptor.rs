//! What goes to the device and what comes back.
//!
//! Layouts and numbers are those of the *Intel Data Streaming Accelerator Architecture Specification* (order number
//! 341204, revision 3.0), whose sections stand beside them; Linux has the same in `linux/idxd.h`.

use core::mem::{align_of, offset_of, size_of};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::Span;

/// Operation "Fill" (table 8-2).
const FILL: u32 = 0x04;
/// "Completion Record Address Valid" (8.1.3, bit 2).
const RECORD_VALID: u32 = 1 << 2;
/// "Request Completion Record" (8.1.3, bit 3): also when all went well.
const RECORD_ALWAYS: u32 = 1 << 3;

/// A request to fill memory with zeroes (8.1 and 8.3.5).
///
/// Its other flags are 0. So a page fault ends the operation in part ("Block On Fault" is 0). The zeroes are written
/// to memory, not to the cache ("Cache Control" is 0). No interrupt is sent, and the pattern has 8 bytes.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Address space and privilege (8.1.1): 0 in user space; the instruction or the kernel fills them in.
    trusted: u32,
    /// Flags in the lower 24 bits (8.1.3), the operation above (8.1.2).
    operation: u32,
    /// Where the completion record goes (8.1.4).
    record: u64,
    /// What the memory is filled with.
    pattern: u64,
    /// The first byte to fill (8.1.6).
    destination: u64,
    /// How many (8.1.7).
    bytes: u32,
    /// Of the interrupt that is not asked for (8.1.8), and reserved bytes.
    interrupt: u32,
    /// Reserved for this operation.
    reserved: [u64; 3],
}

const _: () = {
    assert!(size_of::<Descriptor>() == 64 && align_of::<Descriptor>() == 64);
    assert!(offset_of!(Descriptor, operation) == 4 && offset_of!(Descriptor, record) == 8);
    assert!(offset_of!(Descriptor, pattern) == 16 && offset_of!(Descriptor, destination) == 24);
    assert!(offset_of!(Descriptor, bytes) == 32 && offset_of!(Descriptor, reserved) == 40);
    assert!(size_of::<Record>() == 32 && align_of::<Record>() == 32);
};

impl Descriptor {
    /// Zeroes for `span`, which has less than 4 GiB.
    pub fn fill(span: Span, record: &Record) -> Self {
        debug_assert!(span.bytes() <= u32::MAX as usize);
        Self {
            trusted: 0,
            operation: FILL << 24 | RECORD_VALID | RECORD_ALWAYS,
            record: core::ptr::from_ref(record) as u64,
            pattern: 0,
            destination: span.start as u64,
            bytes: span.bytes() as u32,
            interrupt: 0,
            reserved: [0; 3],
        }
    }

    /// What it fills.
    pub fn span(&self) -> Span {
        Span::new(self.destination as usize, self.bytes as usize)
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device has not said anything yet.
    Pending,
    /// All of it is zero.
    Done,
    /// A page was missing; this many bytes before it are zero.
    Fault(usize),
    /// It did not work; the device's status code.
    Failed(u8),
}

/// Where the device writes what became of a request (8.2). The first word has the status in its lowest byte, and the
/// bytes completed in its upper half: both are seen at once.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Record {
    words: [AtomicU64; 4],
}

impl Record {
    /// One that nothing was written to.
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; 4] }
    }

    /// Before a request: the device never writes a status of 0 (8.2.1).
    pub fn clear(&self) {
        self.words[0].store(0, Ordering::Release);
    }

    /// As a device writes it: a status, and how many bytes are zero where that says so. For devices made of software.
    pub fn complete(&self, status: u8, bytes: u32) {
        self.words[0].store((bytes as u64) << 32 | status as u64, Ordering::Release);
    }

    /// The outcome as it stands now. Acquire: the device's earlier writes are seen, too.
    pub fn outcome(&self) -> Outcome {
        let word = self.words[0].load(Ordering::Acquire);
        // Bit 7 of the status says which access had the fault (table 8-10).
        match word as u8 & 0x3f {
            0 => Outcome::Pending,
            // Success (table 5-6).
            0x01 => Outcome::Done,
            // A page fault on memory that is read or written.
            0x03 => Outcome::Fault((word >> 32) as usize),
            other => Outcome::Failed(other),
        }
    }
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_bytes_where_the_device_reads_them() {
        let record = Record::new();
        let request = Descriptor::fill(Span::new(0x1122_3344_5566_7000, 0x0020_0000), &record);
        // SAFETY: 64 bytes without padding.
        let bytes = unsafe { core::mem::transmute::<Descriptor, [u8; 64]>(request) };
        let mut expected = [0u8; 64];
        expected[4..8].copy_from_slice(&[0x0c, 0, 0, 0x04]);
        expected[8..16].copy_from_slice(&(&raw const record as u64).to_le_bytes());
        expected[24..32].copy_from_slice(&[0, 0x70, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        expected[32..36].copy_from_slice(&[0, 0, 0x20, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_record_is_read_as_the_device_writes_it() {
        let outcome = |bytes: [u8; 8]| {
            let record = Record::new();
            record.words[0].store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            record.outcome()
        };
        assert_eq!(outcome([0; 8]), Outcome::Pending);
        assert_eq!(outcome([1, 0, 0, 0, 0, 0, 0, 0]), Outcome::Done);
        assert_eq!(outcome([0x83, 0, 6, 0, 0, 0x30, 0x10, 0]), Outcome::Fault(0x0010_3000), "of a write");
        assert_eq!(outcome([0x03, 0, 2, 0, 64, 0, 0, 0]), Outcome::Fault(64), "of a read");
        assert_eq!(outcome([0x11, 0, 0, 0, 9, 0, 0, 0]), Outcome::Failed(0x11), "invalid flags");
        assert_eq!(outcome([0x5a, 0, 0, 0, 9, 0, 0, 0]), Outcome::Failed(0x1a), "bit 6 means nothing");
    }
}
