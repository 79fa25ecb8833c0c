//! The map of places whose attributes the program has changed: the library's own file, which needs neither the engine
//! nor the C library's functions replaced.

#[path = "../src/alloc/beside.rs"]
mod map;

use faultless_base::Span;
use map::Beside;
use proptest::prelude::*;

const GRAIN: usize = 64 << 10;
/// Addresses that are that far apart are not told apart.
const AROUND: usize = 16 << 30;
const MOST: usize = 1 << 30;

/// A range in an address space of 64 GiB, of a page up to 4 GiB.
fn ranges() -> impl Strategy<Value = Span> {
    let bytes = prop_oneof![4 => 1..64usize, 4 => 1..2000usize, 1 => 1..1usize << 20];
    (0usize..1 << 24, bytes).prop_map(|(page, pages)| Span::new(page << 12, pages << 12))
}

fn meet(a: Span, b: Span) -> bool {
    a.start < b.end && b.start < a.end
}

fn by_grains(span: Span) -> Span {
    Span { start: span.start / GRAIN * GRAIN, end: span.end.next_multiple_of(GRAIN) }
}

proptest! {
    /// Every place that was noted is known; of others those alone that share a bit with one, or lie between large ones.
    #[test]
    fn noted_places_are_known(noted in prop::collection::vec(ranges(), 0..12), asked in prop::collection::vec(ranges(), 1..60)) {
        let beside = Box::new(Beside::new());
        noted.iter().for_each(|span| beside.note(*span));
        prop_assert_eq!(beside.has_any(), !noted.is_empty());
        let large = || noted.iter().filter(|span| span.bytes() > MOST);
        let all_large = large().copied().reduce(|a, b| Span { start: a.start.min(b.start), end: a.end.max(b.end) });
        for span in noted.iter().chain(&asked).filter(|span| span.bytes() <= 1 << 20).copied() {
            let shares = |other: &Span| {
                let (a, b) = (by_grains(span), by_grains(*other));
                other.bytes() <= MOST && (0..8).any(|i| {
                    let moved = Span { start: b.start + i * AROUND, end: b.end + i * AROUND };
                    meet(Span { start: a.start + 4 * AROUND, end: a.end + 4 * AROUND }, moved)
                })
            };
            let expected = noted.iter().any(shares) || all_large.is_some_and(|all| meet(all, span));
            prop_assert_eq!(beside.holds(span), expected, "{:?}", span);
            prop_assert!(!noted.iter().any(|other| meet(*other, span)) || beside.holds(span), "{:?}", span);
        }
    }
}

#[test]
fn what_is_noted_anywhere_is_known_everywhere() {
    let beside = Box::new(Beside::new());
    assert!(!beside.has_any() && !beside.holds(Span::new(1 << 40, 4096)));
    beside.note(Span::new(0, 0));
    assert!(!beside.has_any());
    beside.note(Span { start: 0, end: usize::MAX });
    assert!(
        beside.has_any()
            && beside.holds(Span::new(1 << 40, 4096))
            && beside.holds(Span::new(0x7fff_ffff_f000, 4096))
    );
}
