//! A file of which several threads change the bytes, the length and the memory at a time. What each has seen is compared
//! with the history of all.

use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use faultless::file::{Advice, CacheGroup, Delivery, File, Mapping, MappingMut};
use faultless_testkit::rng::Rng;

use crate::history::{Clock, Event, History, What, When};
use crate::pace::Pace;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;
const THREADS: usize = 3;
const STEPS: usize = 60;
const MOST: usize = 3 * SLOT + 5 * PAGE + 100;
/// Bytes that a thread touches by a mapping at a time: faults one after the other.
const FEW: usize = 20_000;
/// Of the group of some rounds: less than a huge page for each thread.
const BUDGET: usize = 5 << 20;
const ADVICE: [Advice; 6] =
    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::Huge];

/// A part that begins and ends somewhere, often near a border.
fn part(within: usize, rng: &mut Rng) -> Range<usize> {
    let unit = rng.of(&[1, PAGE, SLOT]);
    let near = rng.below(within / unit + 1) * unit + rng.below(3);
    let at = near.saturating_sub(1).min(within);
    let most = rng.of(&[100, 3 * PAGE, 40 * PAGE]);
    at..at + rng.below(most.min(within - at) + 1)
}

fn in_file(part: &Range<usize>) -> Range<u64> {
    part.start as u64..part.end as u64
}

enum Mapped {
    Read(Mapping),
    Write(MappingMut),
}

impl Mapped {
    fn get(&self) -> &Mapping {
        match self {
            Self::Read(mapping) => mapping,
            Self::Write(mapping) => mapping,
        }
    }

    /// Bytes of it, which other threads use, too.
    fn bytes(&self, part: Range<usize>) -> impl Iterator<Item = &AtomicU8> {
        let first = self.get().as_ptr().cast_mut();
        // SAFETY: bytes of the mapping, all of which are used by atomic accesses, or by copies of the library's.
        part.map(move |at| unsafe { AtomicU8::from_ptr(first.add(at)) })
    }
}

/// One of the threads.
struct Hand<'a> {
    file: &'a File,
    clock: &'a Clock,
    rng: Rng,
    /// Whether the file's memory is bounded, so that a mapping of it all may have no room.
    is_in_group: bool,
    mapped: Option<(Mapped, Range<usize>, When)>,
    events: Vec<Event>,
}

impl Hand<'_> {
    /// Does something, and notes from when until when.
    fn timed<T>(&mut self, call: impl FnOnce(&File) -> T) -> (T, When) {
        let begin = self.clock.now();
        let done = call(self.file);
        (done, When { begin, end: self.clock.now() })
    }

    fn note(&mut self, when: When, what: What) {
        self.events.push(Event { when, what });
    }

    /// Notes what was done to a part, unless that was not inside the file.
    fn note_if_inside<T>(&mut self, (done, when): (io::Result<T>, When), part: Range<usize>, what: Option<What>) {
        match done {
            Ok(_) => what.into_iter().for_each(|what| self.note(when, what)),
            Err(error) if error.kind() == ErrorKind::InvalidInput => self.note(when, What::Outside { part }),
            Err(error) => panic!("{part:?}: {error}"),
        }
    }

    fn map(&mut self) {
        let part = part(MOST, &mut self.rng);
        let (at, bytes) = (part.start as u64, part.len());
        let (is_lazy, is_written) = (self.is_in_group || self.rng.one_in(2), self.rng.one_in(2));
        let (mapped, when) = self.timed(|file| match (is_lazy, is_written) {
            (true, true) => file.map_lazy_mut(at, bytes).map(Mapped::Write),
            (true, false) => file.map_lazy(at, bytes).map(Mapped::Read),
            (false, true) => file.map_mut(at, bytes).map(Mapped::Write),
            (false, false) => file.map(at, bytes).map(Mapped::Read),
        });
        match mapped {
            Ok(mapped) => self.mapped = Some((mapped, part, when)),
            Err(error) if error.kind() == ErrorKind::InvalidInput => self.note(when, What::Outside { part }),
            // A machine without userfaultfd.
            Err(error) => assert!(is_lazy, "{part:?}: {error}"),
        }
    }

    fn unmap(&mut self) {
        let Some((mapped, part, made)) = self.mapped.take() else { return };
        let ((), ended) = self.timed(|_| drop(mapped));
        let certainly = When { begin: made.end, end: ended.begin };
        self.note(When { begin: made.begin, end: ended.end }, What::Mapped { part, certainly });
    }

    /// Reads or changes bytes of the mapping.
    fn touch(&mut self) {
        let Some((mapped, part, made)) = self.mapped.take() else { return self.map() };
        let at = self.rng.below(part.len() + 1);
        let few = at..at + self.rng.below((part.len() - at).min(FEW) + 1);
        let in_all = part.start + few.start..part.start + few.end;
        let (byte, by_call) = (self.rng.word() as u8, self.rng.one_in(2));
        match &mapped {
            Mapped::Write(mapping) if self.rng.one_in(2) => {
                let ((), when) = self.timed(|_| match by_call {
                    true => mapping.write(few.start, &vec![byte; few.len()]).unwrap(),
                    false => mapped.bytes(few).for_each(|place| place.store(byte, Ordering::Relaxed)),
                });
                self.note(when, What::Fill { part: in_all, byte });
            }
            _ => {
                let mut got = vec![!byte; few.len()];
                let ((), when) = self.timed(|_| match by_call {
                    true => mapped.get().read(few.start, &mut got).unwrap(),
                    false => got
                        .iter_mut()
                        .zip(mapped.bytes(few))
                        .for_each(|(to, from)| *to = from.load(Ordering::Relaxed)),
                });
                self.note(when, What::Read { at: in_all.start, asked: got.len(), got });
            }
        }
        self.mapped = Some((mapped, part, made));
    }

    fn step(&mut self) {
        let (part, byte) = (part(MOST, &mut self.rng), self.rng.word() as u8);
        let (at, asked) = (part.start, part.len());
        match self.rng.below(16) {
            0..=2 => {
                let mut got = vec![!byte; asked];
                let (read, when) = self.timed(|file| file.read_at(&mut got, at as u64).unwrap());
                got.truncate(read);
                self.note(when, What::Read { at, asked, got });
            }
            3..=4 => {
                let bytes = vec![byte; asked];
                let (written, when) = self.timed(|file| file.write_at(&bytes, at as u64).unwrap());
                assert_eq!(written, asked);
                self.note(when, What::Write { part, byte });
            }
            5..=7 => {
                let length = self.rng.of(&[at, part.end, MOST - at]);
                match self.timed(|file| file.set_len(length as u64)) {
                    (Ok(()), when) => self.note(when, What::SetLength(length)),
                    (Err(error), when) => {
                        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
                        self.note(when, What::Busy(length));
                    }
                }
            }
            8 => {
                let done = self.timed(|file| file.punch_hole(in_file(&part)));
                self.note_if_inside(done, part.clone(), Some(What::Fill { part, byte: 0 }));
            }
            9..=11 => self.touch(),
            12 => self.unmap(),
            13 => {
                let (length, when) = self.timed(File::len);
                self.note(when, What::Length(length as usize));
            }
            14 => match self.rng.below(3) {
                0 => self.file.sync().unwrap(),
                1 => self.file.sync_range(in_file(&part)).unwrap(),
                _ => _ = self.file.drop_cache(),
            },
            _ => match self.rng.below(3) {
                0 => _ = self.file.drop_range(at as u64..u64::MAX),
                1 => {
                    let done = self.timed(|file| file.prefetch(&[in_file(&part)]));
                    self.note_if_inside(done, part, None);
                }
                _ => {
                    let advice = self.rng.of(&ADVICE);
                    let done = self.timed(|file| file.advise(in_file(&part), advice));
                    self.note_if_inside(done, part, None);
                }
            },
        }
    }

    fn work(mut self) -> Vec<Event> {
        for _ in 0..STEPS {
            self.step();
            if self.rng.one_in(6) {
                self.unmap();
            }
        }
        self.unmap();
        self.events
    }
}

/// Opens a file in one of the ways in which it has its memory.
fn open(path: &Path, group: Option<&CacheGroup>, rng: &mut Rng) -> File {
    let open = fs::File::options().read(true).write(true).open(path).unwrap();
    let file = match (group, rng.one_in(2)) {
        (Some(group), _) => group.file(&open),
        (None, true) => File::with_small_pages(&open),
        (None, false) => File::new(&open),
    };
    let file = file.unwrap();
    // Where it can be neither, there are no lazy mappings.
    let _ = file.deliver(rng.of(&[Delivery::Thread, Delivery::Signal]));
    file
}

/// What the file has after a round, in which it had these bytes before.
fn round(path: &Path, before: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    fs::write(path, &before).unwrap();
    let group = rng.one_in(3).then(|| CacheGroup::new(BUDGET).unwrap());
    let file = open(path, group.as_ref(), rng);
    let clock = Clock::default();
    let mut events = thread::scope(|scope| {
        let start = |rng| {
            let (file, clock, is_in_group) = (&file, &clock, group.is_some());
            let hand = Hand { file, clock, rng, is_in_group, mapped: None, events: Vec::new() };
            scope.spawn(move || hand.work())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| start(Rng::new(rng.word()))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let begin = clock.now();
    let mut got = vec![0xEE; 2 * MOST];
    let read = file.read_at(&mut got, 0).unwrap();
    got.truncate(read);
    let after = got.clone();
    events
        .push(Event { when: When { begin, end: clock.now() }, what: What::Read { at: 0, asked: 2 * MOST, got } });
    let history = History { before, events };
    history.check().unwrap_or_else(|why| panic!("{why}"));
    match rng.one_in(2) {
        true => file.sync().unwrap(),
        // The last handle writes back.
        false => drop(file),
    }
    assert!(fs::read(path).unwrap() == after, "the file on the disk");
    after
}

/// Each round begins with a length of its own.
pub fn work(pace: &Pace) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let mut bytes = Vec::new();
    pace.run(|rng| {
        let length = rng.of(&[bytes.len(), 0, 1, PAGE - 1, PAGE + 1, SLOT + 1, MOST]);
        bytes.resize(length, rng.word() as u8);
        bytes = round(&path, std::mem::take(&mut bytes), rng);
    })
}
