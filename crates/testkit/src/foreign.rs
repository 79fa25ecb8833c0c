//! Bytes that others wrote: what parsers must bear.
//!
//! [`garbled`] makes texts that are nearly sound, or not at all. [`Guarded`] ends where memory ends, so that a
//! read behind it crashes. `PROPTEST_CASES=1000000` runs a million cases of each test instead of 256.

use proptest::prelude::*;

/// How many cases run. No file is left behind by one that fails: it is printed.
pub fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// What is put into a text where it may hurt: numbers at the limits, and characters that mean something.
const PIECES: &[&[u8]] = &[
    b"0",
    b"-1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775808",
    b"99999999999999999999999999",
    b"ffffffffffffffff",
    b"10000000000000000",
    b" ",
    b"\n",
    b"\0",
    b"\t",
    b":",
    b"/",
    b"\\0",
    b"\\777",
    b"=",
    b",",
    b") ",
    b"\xff\xfe",
];

/// A change of a text, with numbers for its places.
type Edit = (u8, usize, usize, u8);

fn edit(text: &mut Vec<u8>, (kind, at, length, byte): Edit) {
    let at = at % (text.len() + 1);
    let end = (at + length).min(text.len());
    match kind % 6 {
        0 => text[at..end].iter_mut().take(1).for_each(|to| *to = byte),
        1 => text[at..end].iter_mut().take(1).for_each(|to| *to ^= 1 << (byte % 8)),
        2 => text.truncate(at),
        3 => drop(text.drain(at..end)),
        4 => drop(text.splice(at..at, PIECES[byte as usize % PIECES.len()].iter().copied())),
        _ => {
            let again = text[at..end].repeat(1 + byte as usize);
            text.splice(at..at, again);
        }
    }
}

/// Random bytes; or one of `samples` with some changes, or none.
pub fn garbled(samples: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<u8>(), any::<usize>(), 0usize..40, any::<u8>()), 0..6);
    let changed = (prop::sample::select(samples), edits).prop_map(|(sample, edits)| {
        let mut text = sample.as_bytes().to_vec();
        edits.into_iter().for_each(|change| edit(&mut text, change));
        text
    });
    prop_oneof![4 => changed, 1 => prop::collection::vec(any::<u8>(), 0..400)]
}

/// Changes of binary data: where, to what, and how many bytes.
pub type Change = (usize, u64, u32);

/// Some changes. Many are among the first 64 bytes, where headers are.
pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    let place = prop_oneof![0usize..64, any::<usize>()];
    let value =
        prop_oneof![0u64..64, any::<u64>(), Just(u64::MAX), Just(u32::MAX.into()), Just(1 << 63), Just(1 << 31)];
    prop::collection::vec((place, value, 0u32..4), 0..8)
}

/// These bytes changed, and cut where that is wanted.
pub fn changed(mut bytes: Vec<u8>, changes: Vec<Change>, cut: Option<usize>) -> Vec<u8> {
    for (at, value, size) in changes {
        let size = 1 << size;
        let at = at % (bytes.len() - size) / size * size;
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    bytes.truncate(cut.map_or(bytes.len(), |cut| cut % bytes.len()));
    bytes
}

/// As `read`, for a text: it gives `part` bytes at a time, and nothing at the end.
pub fn in_parts(mut text: &[u8], part: usize) -> impl FnMut(&mut [u8]) -> usize {
    move |buffer| {
        let n = text.len().min(part).min(buffer.len());
        buffer[..n].copy_from_slice(&text[..n]);
        text = &text[n..];
        n
    }
}

/// Bytes that end where memory ends.
pub struct Guarded {
    mapping: *mut u8,
    mapped: usize,
    bytes: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    /// A copy of these bytes. Before the page in which they begin, and behind them, nothing can be read.
    pub fn new(bytes: &[u8]) -> Self {
        let inner = bytes.len().next_multiple_of(PAGE);
        let mapped = inner + 2 * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping; its inner pages are opened, and as many bytes are written to their end.
        unsafe {
            let mapping = libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0).cast::<u8>();
            assert_ne!(mapping as usize, usize::MAX);
            let open = libc::PROT_READ | libc::PROT_WRITE;
            assert!(inner == 0 || libc::mprotect(mapping.add(PAGE).cast(), inner, open) == 0);
            let start = mapping.add(PAGE + inner - bytes.len());
            start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            Self { mapping, mapped, bytes: bytes.len() }
        }
    }

    /// Where they begin.
    pub fn start(&self) -> usize {
        self.mapping as usize + self.mapped - PAGE - self.bytes
    }
}

impl std::ops::Deref for Guarded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: bytes of the mapping that `new` wrote.
        unsafe { std::slice::from_raw_parts(self.start() as *const u8, self.bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        unsafe { libc::munmap(self.mapping.cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #![proptest_config(cases())]

        /// What is given to parsers is what was made, whatever the parts.
        #[test]
        fn bytes_come_as_they_are(text in garbled(&["a: 1\n", "b 2 kB\nc"]), part in 1usize..50, room in 1usize..50) {
            let (mut read, mut all, mut buffer) = (in_parts(&text, part), Vec::new(), vec![0; room]);
            loop {
                match read(&mut buffer) {
                    0 => break,
                    n => all.extend_from_slice(&buffer[..n]),
                }
            }
            prop_assert_eq!(&all, &text);
            let guarded = Guarded::new(&text);
            prop_assert_eq!(&guarded[..], &text[..]);
            prop_assert_eq!((guarded.start() + text.len()) % PAGE, 0);
        }
    }
}
