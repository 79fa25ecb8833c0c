//! Lists of areas, sound and not.

use faultless_base::{SLOT, Span};
use faultless_testkit::foreign::{cases, garbled, in_parts};
use proptest::prelude::*;

use crate::text::{Mapping, look_up};

const ONE: &str = "200000-400000 rw-p 00000000 00:00 0 \nSize:               2048 kB\nVmFlags: rd wr mr mw me ac \n\
                   400000-600000 rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac hg \n\
                   600000-700000 r--p 00001000 08:01 17 /a b\nVmFlags: rd mr mw me \n";
const LARGE: &str = "200000-ffffffffffffffff rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac \n";

#[test]
fn areas_that_differ_in_advice_are_one() {
    let of = |from, to| look_up(in_parts(ONE.as_bytes(), 7), Span { start: from, end: to }, || false, false);
    assert_eq!(of(SLOT, 3 * SLOT), Mapping::Plain);
    assert_eq!(of(SLOT, 3 * SLOT + 1), Mapping::Several, "a file");
    assert_eq!(of(0, 2 * SLOT), Mapping::Several, "a hole");
    assert_eq!(of(8 * SLOT, 9 * SLOT), Mapping::Several, "nothing");
}

#[test]
fn areas_that_the_program_keeps_apart_are_several() {
    let area = |from: usize, name: &str, key: u64, flags: &str| {
        let to = from + SLOT;
        format!(
            "{from:x}-{to:x} rw-p 00000000 00:00 0 {name}\nProtectionKey: {key}\nVmFlags: rd wr mr mw me ac {flags} \n"
        )
    };
    let two = |first: (&str, u64, &str), second: (&str, u64, &str), watches| {
        let text = area(SLOT, first.0, first.1, first.2) + &area(2 * SLOT, second.0, second.1, second.2);
        look_up(in_parts(text.as_bytes(), 9), Span::new(SLOT, 2 * SLOT), || false, watches)
    };
    let plain = ("", 0, "");
    assert_eq!(two(plain, ("", 0, "nh"), true), Mapping::Plain);
    assert_eq!(two(("[anon:a]", 0, ""), ("[anon:a]", 0, "hg"), false), Mapping::Plain);
    assert_eq!(two(("[anon:a]", 0, ""), ("[anon:b]", 0, ""), false), Mapping::Several, "names");
    assert_eq!(two(("[anon:a]", 0, ""), plain, false), Mapping::Several, "a name");
    assert_eq!(two(("[heap]", 0, ""), plain, false), Mapping::Plain, "no name of the program's");
    assert_eq!(two(plain, ("", 1, ""), false), Mapping::Several, "keys");
    assert_eq!(two(("", 0, "um"), ("", 0, "um"), true), Mapping::Several, "two userfaultfds");
    assert_eq!(two(("", 0, "uw"), ("", 0, ""), false), Mapping::Plain, "the engine's");
    assert_eq!(two(("", 0, "uw"), ("", 0, ""), true), Mapping::Several, "the program's");
    let text = area(SLOT, "", 0, "um");
    let inside = look_up(in_parts(text.as_bytes(), 9), Span::new(SLOT, SLOT), || false, true);
    assert_eq!(inside, Mapping::One);
}

/// The lines of areas without a file, and whether they have flags: start and end.
fn areas(text: &[u8]) -> Vec<(usize, usize)> {
    let number = |digits: &[u8]| usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let lines = text.split(|b| *b == b'\n').map(|line| &line[..line.len().min(256)]);
    lines
        .filter_map(|line| {
            let addresses = line.split(|b| *b == b' ').next()?;
            let dash = addresses.iter().position(|b| *b == b'-')?;
            Some((number(&addresses[..dash])?, number(&addresses[dash + 1..])?))
        })
        .collect()
}

proptest! {
    #![proptest_config(cases())]

    /// What passes for one mapping lies in areas of the list, without a gap.
    #[test]
    fn what_is_one_is_covered(
        text in garbled(&[ONE, LARGE]),
        part in 1usize..2000,
        start in 0usize..5,
        slots in 1usize..4,
        shifted in any::<bool>(),
    ) {
        let span = Span::new(start * SLOT, slots * SLOT);
        let found = look_up(in_parts(&text, part), span, || shifted, false);
        if found != Mapping::Several {
            let areas = areas(&text);
            let mut at = span.start;
            while at < span.end {
                let next = areas.iter().filter(|(from, to)| *from <= at && at < *to).map(|(_, to)| *to).max();
                prop_assert!(next.is_some(), "{:?} {:#x} {:?}", found, at, areas);
                at = next.unwrap_or(usize::MAX);
            }
        }
    }
}
