//! What several threads have done to a file at a time, and whether each may have seen what it saw.
//!
//! Each call lies between two moments. One that was over before another began came before it; two that overlap may have
//! come in either order. So a byte that was read is that of the last change before, or of one that no other one has
//! certainly replaced. The same holds for the length. What a file loses when it becomes shorter comes back as zeroes.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Moments, in one order for all threads.
#[derive(Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The next moment.
    pub fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// From before a call until after it.
#[derive(Clone, Copy, Debug)]
pub struct When {
    pub begin: u64,
    pub end: u64,
}

impl When {
    fn is_before(self, other: Self) -> bool {
        self.end < other.begin
    }
}

/// What a call did, or found.
#[derive(Debug)]
pub enum What {
    /// Bytes of a part inside the file were changed.
    Fill {
        part: Range<usize>,
        byte: u8,
    },
    /// The same by a call that makes the file longer where it has to.
    Write {
        part: Range<usize>,
        byte: u8,
    },
    SetLength(usize),
    /// A new length was refused: a mapping reaches behind it.
    Busy(usize),
    /// A mapping, from the begin of the call that made it to the end of the call that ended it. It was certainly there
    /// in the second time.
    Mapped {
        part: Range<usize>,
        certainly: When,
    },
    /// A part was refused: it is not inside the file.
    Outside {
        part: Range<usize>,
    },
    /// A number of bytes was asked for, and these came.
    Read {
        at: usize,
        asked: usize,
        got: Vec<u8>,
    },
    Length(usize),
}

/// One call.
pub struct Event {
    pub when: When,
    pub what: What,
}

/// A change of bytes.
struct Change {
    when: When,
    part: Range<usize>,
    byte: u8,
    /// By a new length.
    is_cut: bool,
}

/// What happened to a file that had these bytes before.
pub struct History {
    pub before: Vec<u8>,
    pub events: Vec<Event>,
}

impl History {
    /// The first event that cannot be.
    pub fn check(&self) -> Result<(), String> {
        self.events.iter().try_for_each(|event| {
            let of = |why: String| format!("{why}, from {} to {}", event.when.begin, event.when.end);
            self.check_one(event).map_err(of)
        })
    }

    fn check_one(&self, Event { when, what }: &Event) -> Result<(), String> {
        let is = |is: bool, why: &dyn Fn() -> String| if is { Ok(()) } else { Err(why()) };
        let lengths = || self.lengths(*when);
        match what {
            What::Write { .. } => Ok(()),
            What::Fill { part, .. } => is(lengths().iter().any(|length| part.end <= *length), &|| {
                format!("{part:?} was changed, but is not inside: {:?}", lengths())
            }),
            What::Mapped { part, certainly } => {
                let lengths = self.lengths(*certainly);
                is(lengths.iter().any(|length| part.end <= *length), &|| {
                    format!("{part:?} is mapped, but not inside: {lengths:?}")
                })
            }
            What::Outside { part } => is(lengths().iter().any(|length| *length < part.end), &|| {
                format!("{part:?} was refused, but is inside: {:?}", lengths())
            }),
            What::Length(length) => is(lengths().contains(length), &|| {
                format!("the length was {length}, but is one of {:?}", lengths())
            }),
            What::SetLength(length) => {
                let keeps = |part: &Range<usize>, certainly: &When| {
                    part.end > *length && certainly.begin < when.begin && when.end < certainly.end
                };
                let keeper = self.events.iter().find(
                    |event| matches!(&event.what, What::Mapped { part, certainly } if keeps(part, certainly)),
                );
                is(keeper.is_none(), &|| format!("it got {length} bytes, but a mapping reaches behind that"))
            }
            What::Busy(length) => {
                let keeps = |event: &Event| {
                    matches!(&event.what, What::Mapped { part, .. } if part.end > *length)
                        && !event.when.is_before(*when)
                        && !when.is_before(event.when)
                };
                is(self.events.iter().any(keeps), &|| {
                    format!("{length} bytes were refused, but nothing is mapped")
                })
            }
            What::Read { at, asked, got } => {
                let fits = |length: &usize| got.len() == length.saturating_sub(*at).min(*asked);
                is(lengths().iter().any(fits), &|| {
                    format!("{} of {asked} bytes at {at}, but the length is one of {:?}", got.len(), lengths())
                })?;
                self.check_bytes(*when, *at, got)
            }
        }
    }

    /// The lengths that the file may have had at a moment of that time.
    fn lengths(&self, when: When) -> Vec<usize> {
        let first = (When { begin: 0, end: 0 }, self.before.len());
        let set = self.events.iter().filter_map(|event| match event.what {
            What::SetLength(length) => Some((event.when, length)),
            _ => None,
        });
        let mut set: Vec<_> = set.chain([first]).filter(|(set, _)| set.begin < when.end).collect();
        let latest =
            set.iter().filter(|(set, _)| set.is_before(when)).map(|(set, _)| set.begin).max().unwrap_or(0);
        set.retain(|(set, _)| set.end >= latest);
        let grown = |event: &Event| match &event.what {
            What::Write { part, .. } if !part.is_empty() => Some((event.when, part.end)),
            _ => None,
        };
        let grown: Vec<_> = self.events.iter().filter_map(grown).collect();
        // No byte is lost that came after all of those, and before this.
        let is_kept = |grown: When| grown.is_before(when) && set.iter().all(|(set, _)| set.is_before(grown));
        let kept = grown.iter().filter(|(grown, _)| is_kept(*grown)).map(|(_, end)| *end).max().unwrap_or(0);
        let least = set.iter().map(|(_, length)| *length).min().unwrap_or(0).max(kept);
        let may_be = grown.iter().filter(|(grown, _)| grown.begin < when.end && grown.end >= latest);
        set.iter().chain(may_be).map(|(_, length)| *length).filter(|length| *length >= least).collect()
    }

    /// All changes of bytes of a part that began before a moment.
    fn changes(&self, within: &Range<usize>, until: u64) -> Vec<Change> {
        let change = |event: &Event| {
            let (part, byte, is_cut) = match &event.what {
                What::Fill { part, byte } | What::Write { part, byte } => (part.clone(), *byte, false),
                What::SetLength(length) => (*length..usize::MAX, 0, true),
                _ => return None,
            };
            let is_here = part.start < within.end && within.start < part.end && event.when.begin < until;
            is_here.then_some(Change { when: event.when, part, byte, is_cut })
        };
        self.events.iter().filter_map(change).collect()
    }

    /// Whether the file may have become longer than that after a change, and before a moment.
    fn grows_after(&self, cut: When, length: usize, until: u64) -> bool {
        self.events.iter().any(|event| {
            let reach = match &event.what {
                What::SetLength(length) => *length,
                What::Write { part, .. } if !part.is_empty() => part.end,
                _ => 0,
            };
            reach >= length && event.when.begin < until && event.when.end > cut.begin
        })
    }

    fn check_bytes(&self, when: When, at: usize, got: &[u8]) -> Result<(), String> {
        let within = at..at + got.len();
        let changes = self.changes(&within, when.end);
        let mut borders: Vec<usize> =
            changes.iter().flat_map(|change| [change.part.start, change.part.end]).collect();
        borders.retain(|border| within.contains(border));
        borders.extend([within.start, within.end]);
        borders.sort_unstable();
        for pair in borders.windows(2) {
            let part = pair[0]..pair[1];
            let here = |change: &&Change| change.part.start <= part.start && part.end <= change.part.end;
            let over = changes.iter().filter(here).filter(|change| change.when.is_before(when));
            let latest = over.map(|change| change.when.begin).max();
            let mut may_be = [false; 256];
            for change in changes.iter().filter(here).filter(|change| change.when.end >= latest.unwrap_or(0)) {
                // Zeroes that a shorter file leaves are seen once it is longer again.
                if !change.is_cut || self.grows_after(change.when, part.end, when.end) {
                    may_be[usize::from(change.byte)] = true;
                }
            }
            for (place, byte) in part.clone().zip(&got[part.start - at..]) {
                let first = self.before.get(place).copied().unwrap_or(0);
                if !may_be[usize::from(*byte)] && (latest.is_some() || *byte != first) {
                    let may_be: Vec<usize> = (0..256).filter(|byte| may_be[*byte]).collect();
                    return Err(format!("{byte} at {place}, but it is one of {may_be:?}, or {first} at first"));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn what_may_be_is_told_from_what_may_not() {
    let event = |begin, end, what| Event { when: When { begin, end }, what };
    let fill = |part, byte| What::Fill { part, byte };
    let write = |part, byte| What::Write { part, byte };
    let read = |at, asked, got: &[u8]| What::Read { at, asked, got: got.to_vec() };
    let check = |events: Vec<Event>| History { before: vec![1; 10], events }.check();
    let is_right = |events| assert_eq!(check(events), Ok(()));
    let is_wrong = |events| assert!(check(events).is_err());
    // The last change before, or one beside it.
    is_right(vec![event(1, 2, fill(2..4, 5)), event(3, 4, read(1, 4, &[1, 5, 5, 1]))]);
    is_wrong(vec![event(1, 2, fill(2..4, 5)), event(3, 4, read(1, 4, &[1, 5, 1, 1]))]);
    for got in [[1, 5], [5, 5], [1, 1]] {
        is_right(vec![event(1, 3, fill(0..2, 5)), event(2, 4, read(0, 2, &got))]);
    }
    is_wrong(vec![event(1, 3, fill(0..2, 5)), event(2, 4, read(0, 2, &[6, 5]))]);
    is_wrong(vec![event(3, 4, fill(0..2, 5)), event(1, 2, read(0, 1, &[5]))]);
    // Of two changes beside each other either may be the last; one that came before both is gone.
    let beside = |byte| {
        let changes = [event(1, 2, fill(0..9, 4)), event(3, 5, fill(0..9, 5)), event(4, 6, fill(0..9, 6))];
        changes.into_iter().chain([event(7, 8, read(0, 1, &[byte]))]).collect::<Vec<_>>()
    };
    is_right(beside(5));
    is_right(beside(6));
    is_wrong(beside(4));
    is_wrong(beside(1));
    // A file that becomes shorter, and longer again: zeroes, not what was there.
    let cut = |more: Event| vec![event(1, 2, What::SetLength(5)), more];
    is_right(cut(event(3, 4, read(3, 9, &[1, 1]))));
    is_wrong(cut(event(3, 4, read(3, 9, &[1, 1, 1]))));
    is_wrong(cut(event(3, 4, What::Length(10))));
    is_wrong(cut(event(3, 4, fill(3..6, 7))));
    is_right(cut(event(3, 4, What::Outside { part: 3..6 })));
    is_wrong(cut(event(3, 4, What::Outside { part: 3..5 })));
    let again = |got: &[u8]| {
        let mut events = cut(event(3, 4, write(7..8, 9)));
        events.push(event(5, 6, read(4, 9, got)));
        events
    };
    is_right(again(&[1, 0, 0, 9]));
    is_wrong(again(&[1, 0, 1, 9]));
    is_wrong(again(&[1, 0, 0]));
    // While it becomes shorter: the old bytes, or fewer.
    let while_cut = |got: &[u8]| vec![event(1, 3, What::SetLength(1)), event(2, 4, read(0, 2, got))];
    is_right(while_cut(&[1]));
    is_right(while_cut(&[1, 1]));
    is_wrong(while_cut(&[1, 0]));
    // A length that is set while a write makes it longer.
    let both = |length| {
        vec![event(1, 3, What::SetLength(2)), event(2, 4, write(15..20, 9)), event(5, 6, What::Length(length))]
    };
    is_right(both(2));
    is_right(both(20));
    is_wrong(both(10));
    // Mappings keep their part.
    let mapped = |sure: (u64, u64), more: Event| {
        let certainly = When { begin: sure.0, end: sure.1 };
        vec![event(sure.0 - 1, sure.1 + 1, What::Mapped { part: 2..8, certainly }), more]
    };
    is_wrong(mapped((2, 8), event(4, 5, What::SetLength(7))));
    is_right(mapped((2, 8), event(4, 5, What::SetLength(8))));
    is_right(mapped((2, 8), event(7, 9, What::Busy(7))));
    is_wrong(mapped((2, 8), event(4, 5, What::Busy(8))));
    is_wrong(mapped((2, 8), event(10, 11, What::Busy(7))));
}
