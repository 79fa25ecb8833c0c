//! Parts of a list come together, all of them with their bytes.

use std::fs;
use std::io;
use std::ops::{ControlFlow, Range};

use faultless::file::File;
use faultless_page::stats::Counter;
use faultless_testkit::refuse;

use crate::chance::Chance;
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, filled, mapped, named, opened, passes_in_child, read_all};

fn counted(counter: Counter) -> u64 {
    faultless::region::Region::counted(counter)
}

/// Many parts, in no order; some meet.
fn parts(within: usize, n: usize, chance: &mut Chance) -> Vec<Range<u64>> {
    let part = |_| {
        let at = chance.below(within);
        at as u64..(at + chance.below((within - at).min(5 * PAGE) + 1)) as u64
    };
    (0..n).map(part).collect()
}

fn sum(parts: &[Range<u64>]) -> usize {
    parts.iter().map(|part| (part.end - part.start) as usize).sum()
}

/// A prefetch tells how far it is, and ends when it is told to.
#[test]
fn a_prefetch_tells_how_far_it_is() {
    let _alone = budget(32 << 20);
    let (_, name) = filled(8 * SLOT, 9);
    let file = File::open(name.path()).unwrap();
    let parts: Vec<_> = (0..8).map(|i| (i * SLOT) as u64..((i + 1) * SLOT) as u64 - 5).collect();
    let mut told = Vec::new();
    let go_on = |done| {
        told.push(done);
        ControlFlow::Continue(())
    };
    let done = file.prefetch_with(&parts, go_on).unwrap();
    assert_eq!(told.last(), Some(&done));
    assert!(told.is_sorted() && told.len() > 1 && done >= 4 * SLOT, "{told:?}");
    file.drop_cache();
    let stop = |_| ControlFlow::Break(io::Error::other("enough"));
    assert_eq!(file.prefetch_with(&parts, stop).unwrap_err().to_string(), "enough");
    assert!(file.present() < 8 * SLOT);
    let outside = [0..5, 7..file.len() + 1];
    assert!(file.prefetch_with(&outside, |_| unreachable!("nothing comes")).is_err());
    assert_eq!(file.prefetch_with(&[], |_| unreachable!("nothing comes")).unwrap(), 0);
}

#[test]
fn a_list_of_parts_is_in_memory_with_its_bytes() {
    let _alone = budget(256 << 20);
    let mut chance = Chance(5);
    let n = 20 * SLOT + 3 * PAGE + 5;
    let all = bytes(n, 5);
    for small in [false, true] {
        let named = named(&all);
        let open = fs::File::open(named.path()).unwrap();
        let file = opened(&open, small);
        let list = parts(n, 300, &mut chance);
        let queued = counted(Counter::FileQueued) + counted(Counter::FileUnqueued);
        assert_eq!(file.prefetch(&list).unwrap(), sum(&list));
        assert!(counted(Counter::FileQueued) + counted(Counter::FileUnqueued) > queued);
        // Nothing more is read.
        let filled = counted(Counter::FileFilled);
        for part in &list {
            let mut got = vec![0xEE; (part.end - part.start) as usize];
            // Small parts, which do not follow each other.
            assert_eq!(file.read_at(&mut got, part.start).unwrap(), got.len());
            assert!(got == all[part.start as usize..part.end as usize], "{part:?}");
        }
        assert_eq!(counted(Counter::FileFilled), filled, "a part was not there");
        if small {
            assert!(file.present() < n, "pages came that nobody has asked for");
        }
        assert!(file.prefetch(&[0..n as u64 + 1]).is_err());
        assert_eq!(file.prefetch(&[5..5, n as u64..n as u64]).unwrap(), 0);
        assert!(read_all(&file) == all);
    }
}

/// As far as there is room: who reads what has come, and goes on, gets everything.
#[test]
fn a_list_that_does_not_fit_comes_in_parts() {
    let _alone = budget(16 << 20);
    let all = bytes(40 * SLOT, 6);
    for small in [false, true] {
        let named = named(&all);
        let open = fs::File::open(named.path()).unwrap();
        let file = opened(&open, small);
        let (mut at, mut rounds) = (0, 0);
        while at < all.len() {
            let n = file.prefetch(&[at as u64..all.len() as u64]).unwrap();
            assert!(n > 0 && file.present() <= 12 * SLOT, "{n} bytes, {} there", file.present());
            let mut got = vec![0; n];
            assert_eq!(file.read_at(&mut got, at as u64).unwrap(), n);
            assert!(got == all[at..at + n], "{at}");
            at += n;
            rounds += 1;
        }
        assert!(rounds > 1);
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_the_rest_comes() {
    let _alone = budget(64 << 20);
    let all = bytes(6 * SLOT, 7);
    let plain = Plain::of(all.clone());
    *plain.0.unreadable.lock().unwrap() = vec![2 * SLOT / PAGE + 7];
    let file = File::with_backing(plain.clone()).unwrap();
    let whole = [0..all.len() as u64];
    assert_eq!(file.prefetch(&whole).unwrap_err().raw_os_error(), Some(5));
    let filled = counted(Counter::FileFilled);
    for at in [0, SLOT, 3 * SLOT, 5 * SLOT] {
        let mut got = vec![0; SLOT];
        assert_eq!(file.read_at(&mut got, at as u64).unwrap(), SLOT);
        assert!(got == all[at..at + SLOT]);
    }
    assert_eq!(counted(Counter::FileFilled), filled, "they were there");
    assert_eq!(file.map(0, all.len()).err().unwrap().raw_os_error(), Some(5));
    plain.0.unreadable.lock().unwrap().clear();
    assert_eq!(file.prefetch(&whole).unwrap(), all.len());
    assert!(mapped(&file.map(0, all.len()).unwrap()) == all);
}

#[test]
fn a_large_mapping_comes_by_many_reads_at_a_time() {
    let _alone = budget(64 << 20);
    let (all, named) = filled(12 * SLOT + 9, 8);
    let file = File::open(named.path()).unwrap();
    let before = counted(Counter::FileQueued) + counted(Counter::FileUnqueued);
    let mapping = file.map(5, all.len() - 5).unwrap();
    assert!(mapped(&mapping) == all[5..]);
    assert!(counted(Counter::FileQueued) + counted(Counter::FileUnqueued) > before);
}

/// A reader that goes through a file asks for more and more at a time.
#[test]
fn reads_that_follow_each_other_bring_what_comes_next() {
    let _alone = budget(256 << 20);
    let (all, named) = filled(24 * SLOT, 9);
    let file = File::open(named.path()).unwrap();
    let mut got = vec![0; PAGE];
    let mut seen = 0;
    for at in (0..12 * SLOT).step_by(PAGE) {
        assert_eq!(file.read_at(&mut got, at as u64).unwrap(), PAGE);
        assert!(got == all[at..at + PAGE]);
        seen = seen.max(file.present().saturating_sub(at));
    }
    if file.is_direct() {
        assert!(seen > 4 * SLOT, "{seen} bytes ahead");
    }
    // One that jumps does not.
    drop(file);
    let file = File::open(named.path()).unwrap();
    for slot in [20, 3, 11, 7, 1] {
        file.read_at(&mut got, (slot * SLOT) as u64 + 77).unwrap();
    }
    assert!(file.present() <= 5 * SLOT);
}

#[test]
fn without_io_uring_all_comes_one_after_the_other() {
    let _alone = budget(64 << 20);
    let (all, named) = filled(6 * SLOT + 5, 10);
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
        let in_child = || {
            refuse(call);
            let file = File::open(named.path()).unwrap();
            let before = [counted(Counter::FileUnqueued), counted(Counter::FileQueued)];
            assert_eq!(file.prefetch(&[0..SLOT as u64, 5 * SLOT as u64..all.len() as u64]).unwrap(), 2 * SLOT + 5);
            assert!(mapped(&file.map(0, all.len()).unwrap()) == all);
            assert_eq!(counted(Counter::FileQueued), before[1]);
            assert!(counted(Counter::FileUnqueued) > before[0]);
        };
        assert!(passes_in_child(in_child), "{call}");
    }
}
