//! Arenas beside each other and beside regions: what they leave is under the process's one budget.

mod apart;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use apart::passes_apart;
use faultless::Arena;
use faultless::region::set_as;
use faultless_testkit::limit::limit;

const MIB: usize = 1 << 20;
const BUDGET: usize = 16 * MIB;

/// A line of the process's status, in bytes.
fn status(name: &str) -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Blocks that were used all over, and are dropped.
fn leave(arena: &Arena, blocks: usize) {
    let blocks: Vec<_> = (0..blocks).map(|_| arena.zeroed(8 * MIB).unwrap()).collect();
    blocks.into_iter().for_each(|mut block| block.fill(7));
}

#[test]
fn what_arenas_leave_goes_back_but_for_the_budget() {
    limit();
    passes_apart(|| {
        assert!(set_as(b"budget", BUDGET as u64));
        let before = status("VmRSS");
        let arena = Arena::new(512 * MIB).unwrap();
        leave(&arena, 32);
        let end = Instant::now() + Duration::from_secs(60);
        while status("VmRSS") > before + BUDGET + 8 * MIB {
            assert!(Instant::now() < end, "{} MiB are left", (status("VmRSS") - before) / MIB);
            thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn a_forked_child_has_nothing_that_is_idle() {
    limit();
    passes_apart(|| {
        assert!(set_as(b"budget", 1 << 30));
        let arena = Arena::new(512 * MIB).unwrap();
        let kept = arena.zeroed(8 * MIB).unwrap();
        let before = status("VmRSS");
        leave(&arena, 32);
        // SAFETY: the child reads a file, and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let more = status("VmRSS").saturating_sub(before);
                let refused = arena.zeroed(1).is_err();
                libc::_exit((more < 24 * MIB && refused && kept[0] == 0) as i32);
            }
            let mut how = 0;
            assert_eq!(libc::waitpid(child, &mut how, 0), child);
            assert!(libc::WIFEXITED(how) && libc::WEXITSTATUS(how) == 1, "{how}");
        }
    });
}

#[test]
fn threads_that_make_the_first_arena_together_reserve_it_once() {
    limit();
    passes_apart(|| {
        let one = {
            let before = status("VmSize");
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| _ = Arena::new(MIB).unwrap());
                }
            });
            status("VmSize") - before
        };
        let reserved = status("VmSize");
        let _ = Arena::new(MIB).unwrap();
        // A stack of a thread that has ended may go late.
        assert!(status("VmSize") <= reserved);
        // SAFETY: a question.
        let memory = faultless_base::PAGE * unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) } as usize;
        // Threads have stacks and heaps of their own, too.
        assert!(one < (2 * memory).next_power_of_two() + 2048 * MIB, "{} MiB of addresses", one / MIB);
    });
}
