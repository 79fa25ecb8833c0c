//! Reads of the same 2 MiB of a lazily mapped file that are under way together.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use faultless::file::{Backing, File};

use crate::lazy::budget_if_lazy;
use crate::plain::Plain;
use crate::{PAGE, SLOT, bytes};

/// Each read waits until `least` of them are under way.
struct Meeting {
    plain: Plain,
    least: usize,
    reads: AtomicUsize,
    under_way: Mutex<usize>,
    met: Condvar,
}

impl Meeting {
    fn of(bytes: Vec<u8>, least: usize) -> Arc<Self> {
        let (reads, under_way, met) = (AtomicUsize::new(0), Mutex::default(), Condvar::new());
        Arc::new(Self { plain: Plain::of(bytes), least, reads, under_way, met })
    }
}

struct Meets(Arc<Meeting>);

impl Backing for Meets {
    fn length(&self) -> io::Result<u64> {
        self.0.plain.length()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        let mut under_way = self.0.under_way.lock().unwrap();
        *under_way += 1;
        self.0.met.notify_all();
        drop(self.0.met.wait_while(under_way, |under_way| *under_way < self.0.least).unwrap());
        self.0.plain.read(offset, buffer)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.plain.write(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.plain.sync()
    }
    fn is_huge(&self) -> bool {
        false
    }
}

/// Has each of these pages read by a thread of its own, while the file is mapped lazily; how many reads that took.
fn read_together(pages: &[usize], least: usize) -> Option<usize> {
    let _alone = budget_if_lazy(64 << 20)?;
    let all = bytes(SLOT, 3);
    let meeting = Meeting::of(all.clone(), least);
    let file = File::with_backing(Meets(meeting.clone())).unwrap();
    let _mapping = file.map_lazy(0, SLOT).unwrap();
    thread::scope(|s| {
        for page in pages {
            let (file, all) = (&file, &all);
            s.spawn(move || {
                let mut found = [0; PAGE];
                assert_eq!(file.read_at(&mut found, (page * PAGE) as u64).unwrap(), PAGE);
                assert!(found == all[page * PAGE..(page + 1) * PAGE], "page {page}");
            });
        }
    });
    Some(meeting.reads.load(Ordering::Relaxed))
}

/// With the lock of their slot held by each of them, they would wait for each other for ever.
#[test]
fn pages_of_one_slot_are_read_at_the_same_time() {
    const PAGES: [usize; 4] = [3, 40, 200, 511];
    let Some(reads) = read_together(&PAGES, PAGES.len()) else { return };
    assert_eq!(reads, PAGES.len());
}

/// A read may cost money.
#[test]
fn no_page_is_read_twice() {
    let Some(reads) = read_together(&[7; 8], 1) else { return };
    assert_eq!(reads, 1);
}

/// The file becomes longer in the midst of this many of its reads, at most.
const GROWS: usize = 8;

#[derive(Default)]
struct Growing {
    plain: Plain,
    reads: AtomicUsize,
    /// How often the file was about to become longer, and how often it has.
    begun: AtomicUsize,
    ended: AtomicUsize,
}

fn wait_for(count: &AtomicUsize, least: usize) {
    while count.load(Ordering::Acquire) < least {
        thread::yield_now();
    }
}

struct Grows(Arc<Growing>);

impl Backing for Grows {
    fn length(&self) -> io::Result<u64> {
        self.0.plain.length()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.plain.read(offset, buffer)?;
        match self.0.reads.fetch_add(1, Ordering::AcqRel) + 1 {
            1 => wait_for(&self.0.ended, 1),
            GROWS.. => {}
            read => {
                wait_for(&self.0.begun, read);
                // Time for the call to go on, if it does not wait for this.
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.plain.write(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.plain.sync()
    }
    fn grow(&self, length: u64) -> io::Result<()> {
        self.0.plain.grow(length)?;
        self.0.begun.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
    fn is_huge(&self) -> bool {
        false
    }
}

/// How many reads it takes to bring a page while each of them meets a file that becomes longer, by a byte in its page 9.
fn reads_beside_growth(page: usize) -> Option<usize> {
    const LENGTH: usize = 9 * PAGE + 100;
    let _alone = budget_if_lazy(64 << 20)?;
    let all = bytes(LENGTH, 5);
    let growing = Arc::new(Growing { plain: Plain::of(all.clone()), ..Growing::default() });
    let file = File::with_backing(Grows(growing.clone())).unwrap();
    let _mapping = file.map_lazy(0, 9 * PAGE).unwrap();
    thread::scope(|s| {
        let reader = s.spawn(|| {
            let mut found = [0; 100];
            assert_eq!(file.read_at(&mut found, (page * PAGE) as u64).unwrap(), found.len());
            assert!(found == all[page * PAGE..][..found.len()]);
        });
        for grow in 1..GROWS {
            while growing.reads.load(Ordering::Acquire) < grow && !reader.is_finished() {
                thread::yield_now();
            }
            if growing.reads.load(Ordering::Acquire) < grow {
                break;
            }
            file.grow((LENGTH + grow) as u64).unwrap();
            growing.ended.fetch_add(1, Ordering::AcqRel);
        }
    });
    Some(growing.reads.load(Ordering::Relaxed))
}

#[test]
fn a_read_counts_while_bytes_of_other_pages_change() {
    let Some(reads) = reads_beside_growth(3) else { return };
    assert_eq!(reads, 1);
}

/// Else a thread that appends all the time would have the page never come.
#[test]
fn a_page_that_changes_during_each_read_comes_by_the_second() {
    let Some(reads) = reads_beside_growth(9) else { return };
    assert_eq!(reads, 2);
}
