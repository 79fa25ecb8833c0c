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

/// What an area has, by the lines about it.
#[derive(Clone, Copy)]
struct Area {
    span: Span,
    has_file: bool,
    /// A number for all by which the kernel keeps areas apart, as far as it tells: the name that the program gave it,
    /// its protection key, its flags.
    kind: u64,
}

fn mixed(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// The first line about an area; no other line has that form.
fn head(line: &[u8]) -> Option<Area> {
    let mut words = line.split(|byte| *byte == b' ');
    let addresses = words.next()?;
    let dash = addresses.iter().position(|byte| *byte == b'-')?;
    let span = Span { start: hex(&addresses[..dash])?, end: hex(&addresses[dash + 1..])? };
    // After protection, offset and device comes the number of the file.
    let has_file = words.nth(3)? != b"0";
    const NAME: &[u8] = b"[anon:";
    let name = line.windows(NAME.len()).position(|bytes| bytes == NAME);
    Some(Area { span, has_file, kind: name.map_or(0, |at| mixed(1, &line[at..])) })
}

/// A number for the flags of an area. It leaves out flags that the engine sets: huge-page advice, and write
/// protection by a userfaultfd (while pages move in). It also leaves out flags for which the kernel keeps no areas
/// apart. These are soft-dirty bits, and the mark of possible guard pages, which one page sets for the whole area.
///
/// An area that may be written to counts as committed memory. Closed to writes, it counts on only if it has memory. So
/// the engine's advice may be why one part counts and another one does not.
fn flags(line: &[u8], sum: u64) -> Option<u64> {
    let words = || line.strip_prefix(b"VmFlags:").map(|words| words.split(|byte| *byte == b' '));
    let is_ours = |word: &[u8]| {
        matches!(word, b"" | b"hg" | b"nh" | b"uw" | b"sd" | b"gu") || word == b"ac" && !writes(line)
    };
    Some(words()?.filter(|word| !is_ours(word)).fold(sum, mixed))
}

/// Whether an area may be written to.
fn writes(line: &[u8]) -> bool {
    line.split(|byte| *byte == b' ').any(|word| word == b"wr")
}

/// Whether the program watches an area by a userfaultfd; with `watches` it has one. Then the engine's advice splits
/// nothing there, and areas are the program's own.
fn is_watched(line: &[u8], watches: bool) -> bool {
    line.split(|byte| *byte == b' ').any(|word| matches!(word, b"um" | b"ui") || watches && word == b"uw")
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
    /// One mapping, which may not be written to.
    Closed,
    /// Several, or not all of it is mapped.
    Several,
}

/// What `span` is by the text that `read` gives. With `shifted`, areas may meet anywhere, and else where slots do. For
/// `watches` see [`is_watched`].
pub fn look_up(
    read: impl FnMut(&mut [u8]) -> usize,
    span: Span,
    shifted: impl Fn() -> bool,
    watches: bool,
) -> Mapping {
    let mut lines = Lines { read, buffer: [0; BUFFER], at: 0, end: 0 };
    let mut line = [0; LINE];
    let mut area = Area { span: Span { start: 0, end: 0 }, has_file: false, kind: 0 };
    let mut seen = span.start;
    let mut common = None;
    let mut found = Mapping::Plain;
    while let Some(line) = lines.next(&mut line) {
        if let Some(next) = head(line) {
            area = next;
        } else if line.starts_with(b"ProtectionKey:") {
            area.kind = mixed(area.kind, line);
        } else if let Some(kind) = flags(line, area.kind).filter(|_| area.span.end > span.start) {
            let is_all = area.span.start <= span.start && area.span.end >= span.end;
            let is_apart = area.has_file || is_watched(line, watches) && !is_all;
            if area.span.start > seen || is_apart || common.is_some_and(|common| common != kind) {
                return Mapping::Several;
            }
            if !writes(line) {
                found = Mapping::Closed;
            } else if !is_plain(line) && found == Mapping::Plain {
                found = Mapping::One;
            }
            (common, seen) = (Some(kind), area.span.end);
            if seen >= span.end {
                return found;
            }
            // Advice of the engine's ends where a slot does, unless it was moved or cut elsewhere.
            if seen % SLOT != 0 && !shifted() {
                return Mapping::Several;
            }
        }
    }
    Mapping::Several
}
