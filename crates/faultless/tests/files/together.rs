//! Reads of the same 2 MiB of a lazily mapped file that are under way together.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

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
