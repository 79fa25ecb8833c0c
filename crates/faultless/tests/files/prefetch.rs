//! Parts of a list come together, all of them with their bytes.

use std::fs;
use std::ops::Range;

use faultless::file::File;
use faultless_page::stats::Counter;

use crate::chance::Chance;
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, mapped, passes_in_child, read_all};

fn counted(counter: Counter) -> u64 {
    faultless::region::Region::counted(counter)
}

/// So many parts, in no order; some meet.
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

#[test]
fn a_list_of_parts_is_in_memory_with_its_bytes() {
    let _alone = budget(256 << 20);
    let mut chance = Chance(5);
    let n = 20 * SLOT + 3 * PAGE + 5;
    let all = bytes(n, 5);
    for small in [false, true] {
        let named = tempfile::NamedTempFile::new().unwrap();
        fs::write(named.path(), &all).unwrap();
        let open = fs::File::open(named.path()).unwrap();
        let file = if small { File::with_small_pages(&open) } else { File::new(&open) }.unwrap();
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
        let named = tempfile::NamedTempFile::new().unwrap();
        fs::write(named.path(), &all).unwrap();
        let open = fs::File::open(named.path()).unwrap();
        let file = if small { File::with_small_pages(&open) } else { File::new(&open) }.unwrap();
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
    let named = tempfile::NamedTempFile::new().unwrap();
    let all = bytes(12 * SLOT + 9, 8);
    fs::write(named.path(), &all).unwrap();
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
    let named = tempfile::NamedTempFile::new().unwrap();
    let all = bytes(24 * SLOT, 9);
    fs::write(named.path(), &all).unwrap();
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

/// Has the kernel refuse a system call of this process from now on.
fn refuse(call: i64) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a program that is read by the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

#[test]
fn without_io_uring_all_comes_one_after_the_other() {
    let _alone = budget(64 << 20);
    let named = tempfile::NamedTempFile::new().unwrap();
    let all = bytes(6 * SLOT + 5, 10);
    fs::write(named.path(), &all).unwrap();
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
