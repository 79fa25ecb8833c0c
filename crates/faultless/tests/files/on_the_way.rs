//! Bytes that a fault of a private mapping is bringing to the cache of its file while the file loses them.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use faultless::file::{Backing, File};

use crate::lazy::budget_if_lazy;
use crate::{PAGE, SLOT, bytes};

/// What the first read waits for.
const HELD: usize = 1;
const TAKEN: usize = 2;

#[derive(Default)]
struct State {
    bytes: Mutex<Vec<u8>>,
    step: AtomicUsize,
}

impl State {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap()
    }
    fn wait_for(&self, step: usize) {
        while self.step.load(Ordering::Acquire) < step {
            thread::yield_now();
        }
    }
}

/// Its first read has its bytes, and ends when others were taken away. They come by huge pages, or by small ones.
struct Held(Arc<State>, bool);

impl Backing for Held {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.bytes().len() as u64)
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.copy_from_slice(&self.0.bytes()[offset as usize..][..buffer.len()]);
        if self.0.step.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.0.wait_for(TAKEN);
            // Time for the call to go on, if it does not wait for this.
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.bytes()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn grow(&self, length: u64) -> io::Result<()> {
        self.0.bytes().resize(length as usize, 0);
        Ok(())
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.bytes().truncate(length as usize);
        self.0.step.store(TAKEN, Ordering::Release);
        Ok(())
    }
    fn punch(&self, offset: u64, bytes: usize) -> io::Result<bool> {
        self.0.bytes()[offset as usize..][..bytes].fill(0);
        self.0.step.store(TAKEN, Ordering::Release);
        Ok(true)
    }
    fn is_huge(&self) -> bool {
        self.1
    }
}

/// Has a fault of a private mapping of the first pages bring 2 MiB while `take` takes the bytes from `from` on away.
fn beside_a_fault(take: impl FnOnce(&File, usize)) {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    let all = bytes(SLOT, 7);
    let state = Arc::new(State { bytes: Mutex::new(all.clone()), ..State::default() });
    let file = File::with_backing(Held(state.clone(), true)).unwrap();
    let from = SLOT / 2;
    let mapping = file.map_private(0, 10 * PAGE).unwrap();
    thread::scope(|s| {
        s.spawn(|| {
            // SAFETY: no other thread uses it.
            assert!(unsafe { mapping.as_slice() }[5 * PAGE..6 * PAGE] == all[5 * PAGE..6 * PAGE]);
        });
        state.wait_for(HELD);
        take(&file, from);
    });
    let mut now = vec![1; SLOT];
    assert_eq!(file.read_at(&mut now, 0).unwrap(), SLOT);
    assert!(now[..from] == all[..from]);
    assert!(now[from..].iter().all(|byte| *byte == 0), "old bytes came back");
}

#[test]
fn a_hole_is_zero_that_a_fault_was_reading() {
    beside_a_fault(|file, from| file.punch_hole(from as u64..SLOT as u64).unwrap());
}

#[test]
fn bytes_behind_the_end_are_gone_that_a_fault_was_reading() {
    beside_a_fault(|file, from| {
        file.set_len(from as u64).unwrap();
        file.set_len(SLOT as u64).unwrap();
    });
}

/// The page is read without the lock of its 2 MiB, where the file is mapped lazily.
#[test]
fn a_hole_is_zero_of_which_a_fault_was_reading_a_page() {
    for hole in [0..SLOT, 5 * PAGE..6 * PAGE] {
        punch_beside_a_page(hole);
    }
}

fn punch_beside_a_page(hole: Range<usize>) {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    let all = bytes(SLOT, 7);
    let state = Arc::new(State { bytes: Mutex::new(all.clone()), ..State::default() });
    let file = File::with_backing(Held(state.clone(), false)).unwrap();
    let lazy = file.map_lazy(0, SLOT).unwrap();
    let mapping = file.map_private(0, 10 * PAGE).unwrap();
    thread::scope(|s| {
        s.spawn(|| {
            // SAFETY: no other thread uses it.
            let found = unsafe { &mapping.as_slice()[5 * PAGE..6 * PAGE] };
            assert!(found == &all[5 * PAGE..6 * PAGE] || found.iter().all(|byte| *byte == 0));
        });
        state.wait_for(HELD);
        file.punch_hole(hole.start as u64..hole.end as u64).unwrap();
    });
    let mut now = vec![1; SLOT];
    assert_eq!(file.read_at(&mut now, 0).unwrap(), SLOT);
    // SAFETY: no thread writes to it.
    let seen = unsafe { lazy.as_slice() };
    for bytes in [&now, seen] {
        assert!(bytes[hole.clone()].iter().all(|byte| *byte == 0), "old bytes came back");
        assert!(bytes[..hole.start] == all[..hole.start] && bytes[hole.end..] == all[hole.end..]);
    }
}
