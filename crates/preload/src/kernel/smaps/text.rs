//! The text of `smaps`: what a range is to the program, by the areas that the kernel lists.

use faultless_base::{SLOT, Span};

/// The longest line that matters; what is longer (a path) is cut.
const LINE: usize = 256;
/// Bytes of the text that are read at a time. They lie on the stack of a thread of the program's.
const BUFFER: usize = 1024;

/// The lines of a text that `read` gives in parts; how many bytes: 0 at its end.
struct Lines<R> {
    read: R,
    buffer: [u8; BUFFER],
    at: usize,
    end: usize,
}

impl<R: FnMut(&mut [u8]) -> usize> Lines<R> {
    fn byte(&mut self) -> Option<u8> {
        if self.at == self.end {
            self.end = (self.read)(&mut self.buffer);
            self.at = 0;
        }
        let byte = *self.buffer[..self.end].get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// The next line, as far as it fits.
    fn next<'a>(&mut self, line: &'a mut [u8; LINE]) -> Option<&'a [u8]> {
        let mut n = 0;
        loop {
            match self.byte()? {
                b'\n' => return Some(&line[..n]),
                byte if n < LINE => {
                    line[n] = byte;
                    n += 1;
                }
                _ => {}
            }
        }
    }
}

fn hex(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

/// The addresses of an area and whether a file is behind it, from the first line about it; no other line has that form.
fn head(line: &[u8]) -> Option<(Span, bool)> {
    let mut words = line.split(|byte| *byte == b' ');
    let addresses = words.next()?;
    let dash = addresses.iter().position(|byte| *byte == b'-')?;
    let span = Span { start: hex(&addresses[..dash])?, end: hex(&addresses[dash + 1..])? };
    // After protection, offset and device comes the number of the file.
    Some((span, words.nth(3)? != b"0"))
}

/// A number for the flags of an area. It leaves out flags that the engine sets: huge-page advice, and write
/// protection by a userfaultfd (while pages move in). It also leaves out flags for which the kernel keeps no areas
/// apart. These are soft-dirty bits, and the mark of possible guard pages, which one page sets for the whole area.
///
/// An area that may be written to counts as committed memory. Closed to writes, it counts on only if it has memory. So
/// the engine's advice may be why one part counts and another one does not.
fn flags(line: &[u8]) -> Option<u64> {
    let words = || line.strip_prefix(b"VmFlags:").map(|words| words.split(|byte| *byte == b' '));
    let writes = words()?.any(|word| word == b"wr");
    let is_ours =
        |word: &[u8]| matches!(word, b"" | b"hg" | b"nh" | b"uw" | b"sd" | b"gu") || word == b"ac" && !writes;
    let kept = words()?.filter(|word| !is_ours(word));
    Some(kept.flatten().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte))))
}

/// Whether an area has no other flags than every private mapping that may be read and written to.
fn is_plain(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ').skip(1).filter(|word| !word.is_empty());
    let (mut reads, mut writes) = (false, false);
    let are_known = words.all(|word| {
        (reads, writes) = (reads || word == b"rd", writes || word == b"wr");
        let kept_apart = matches!(word, b"hg" | b"nh" | b"uw" | b"sd" | b"gu");
        kept_apart || matches!(word, b"rd" | b"wr" | b"mr" | b"mw" | b"me" | b"ac" | b"nr")
    });
    are_known && reads && writes
}

/// What a range is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// One mapping, plain private memory.
    Plain,
    /// One mapping.
    One,
    /// Several, or not all of it is mapped.
    Several,
}

/// What `span` is by the text that `read` gives. With `shifted`, areas may meet anywhere, and else where slots do.
pub fn look_up(read: impl FnMut(&mut [u8]) -> usize, span: Span, shifted: impl Fn() -> bool) -> Mapping {
    let mut lines = Lines { read, buffer: [0; BUFFER], at: 0, end: 0 };
    let mut line = [0; LINE];
    let (mut area, mut file) = (Span { start: 0, end: 0 }, false);
    let mut seen = span.start;
    let mut common = None;
    let mut found = Mapping::Plain;
    while let Some(line) = lines.next(&mut line) {
        if let Some(next) = head(line) {
            (area, file) = next;
        } else if let Some(flags) = flags(line).filter(|_| area.end > span.start) {
            if area.start > seen || file || common.is_some_and(|common| common != flags) {
                return Mapping::Several;
            }
            if !is_plain(line) {
                found = Mapping::One;
            }
            (common, seen) = (Some(flags), area.end);
            if seen >= span.end {
                return found;
            }
            // Advice of the engine's ends where a slot does, unless it was moved elsewhere.
            if seen % SLOT != 0 && !shifted() {
                return Mapping::Several;
            }
        }
    }
    Mapping::Several
}
