//! Private mappings: changes stay where they were made.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use faultless::file::File;
use faultless_testkit::limit::limit;

use crate::chance::Chance;
use crate::lazy::{budget_if_lazy, resident};
use crate::{PAGE, SLOT, filled, read_all};

#[test]
fn changes_are_seen_in_their_mapping_alone() {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    let (all, named) = filled(3 * SLOT + 777, 3);
    let file = File::open_writable(named.path()).unwrap();
    // What is not in the file yet is seen, too.
    file.write_at(b"newer", 100_000).unwrap();
    let mut expected = all.clone();
    expected[100_000..100_005].copy_from_slice(b"newer");
    // It begins inside a page.
    let (start, end) = (5_000, all.len() - 3);
    let reader = File::open(named.path()).unwrap();
    let mut one = reader.map_private(start as u64, end - start).unwrap();
    let mut two = reader.map_private(start as u64, end - start).unwrap();
    // SAFETY: no other thread uses them.
    let (one_bytes, two_bytes) = unsafe { (one.as_mut_slice(), two.as_mut_slice()) };
    assert!(one_bytes == &expected[start..end]);
    for at in [0, 4_095, SLOT, end - start - 1] {
        one_bytes[at] ^= 0xFF;
        two_bytes[at + 1 - (at > 0) as usize * 2] ^= 0x0F;
    }
    two.write(70_000, b"mine").unwrap();
    two.sync().unwrap();
    let mut mine = [0; 4];
    two.read(70_000, &mut mine).unwrap();
    assert_eq!(&mine, b"mine");
    // SAFETY: as above.
    let (one_bytes, two_bytes) = unsafe { (one.as_mut_slice(), two.as_mut_slice()) };
    let differing = |a: &[u8]| (0..a.len()).filter(|i| a[*i] != expected[start + i]).collect::<Vec<_>>();
    assert_eq!(differing(one_bytes), [0, 4_095, SLOT, end - start - 1]);
    assert_eq!(differing(two_bytes).len(), 8);
    assert!(read_all(&file) == expected);
    // The file keeps what is mapped, as for any mapping.
    assert_eq!(file.set_len(10).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    faultless::file::sync_all().unwrap();
    drop((one, reader, two));
    assert!(fs::read(named.path()).unwrap() == expected);
    file.set_len(10).unwrap();
    // The last handle may be a private mapping's.
    let mapping = file.map_private(0, 10).unwrap();
    file.write_at(b"the end", 0).unwrap();
    drop(file);
    mapping.write(8, b"x").unwrap();
    drop(mapping);
    assert!(fs::read(named.path()).unwrap().starts_with(b"the end"));
    assert_ne!(fs::read(named.path()).unwrap()[8], b'x');
}

#[test]
fn a_private_mapping_larger_than_the_budget_keeps_its_changes() {
    const BUDGET: usize = 16 << 20;
    let Some(_alone) = budget_if_lazy(BUDGET as u64) else { return };
    let (all, named) = filled(4 * BUDGET, 9);
    let file = File::open(named.path()).unwrap();
    let mut mapping = file.map_private(0, all.len()).unwrap();
    let mut changed = all.clone();
    let before = resident();
    let mut most = 0;
    // SAFETY: no other thread uses it.
    let memory = unsafe { mapping.as_mut_slice() };
    let mut chance = Chance(5);
    for i in 0..200 {
        // In the first 4 MiB.
        let at = chance.below(2 * SLOT);
        memory[at] = i as u8;
        changed[at] = i as u8;
    }
    for _ in 0..2 {
        for (i, page) in (0..all.len()).step_by(PAGE).enumerate() {
            assert!(memory[page..page + PAGE] == changed[page..page + PAGE], "page {page:#x}");
            if i % 64 == 0 {
                most = most.max(resident().saturating_sub(before));
            }
        }
    }
    // The changed slots are the program's own. Each of the two caches may have one more slot on its way in and out.
    assert!(most <= BUDGET + 2 * SLOT + 6 * SLOT, "{} MiB beyond {} MiB", most >> 20, BUDGET >> 20);
    drop(mapping);
    assert!(fs::read(named.path()).unwrap() == all);
}

/// A fault of a private mapping waits for no call on its file. It does not wait for one that copies to that mapping, and
/// not for one that waits for such a copy.
#[test]
fn calls_may_be_given_private_memory_while_the_length_changes() {
    limit();
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    let (all, named) = filled(4 * SLOT, 4);
    let file = File::open_writable(named.path()).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let lengths = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for more in [PAGE, 0] {
                    file.set_len((all.len() + more) as u64).unwrap();
                }
            }
        });
        for _ in 0..20 {
            let mut mapping = file.map_private(0, SLOT).unwrap();
            // SAFETY: no other thread uses it.
            let memory = unsafe { mapping.as_mut_slice() };
            for page in (0..SLOT).step_by(PAGE) {
                let from = (page * 3 + 5) % (3 * SLOT);
                assert_eq!(file.read_at(&mut memory[page..page + PAGE], from as u64).unwrap(), PAGE);
            }
            for page in (0..SLOT).step_by(PAGE) {
                let from = (page * 3 + 5) % (3 * SLOT);
                assert!(memory[page..page + PAGE] == all[from..from + PAGE]);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        lengths.join().unwrap();
    });
}
