//! Forks that several threads announce at a time.

use faultless::file::File;

use crate::{PAGE, SLOT, budget, bytes, named};

/// Forks, and tells how a child ends that reads this, and then writes there.
fn child(fork: faultless::file::Fork, at: *const u8, writes: bool) -> i32 {
    // SAFETY: the child reads and writes a byte, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        fork.in_child();
        // SAFETY: accesses that may end this child.
        unsafe {
            libc::alarm(60);
            let value = at.read_volatile();
            if writes {
                at.cast_mut().write_volatile(value);
            }
            libc::_exit(0);
        }
    }
    drop(fork);
    let mut status = 0;
    // SAFETY: a place for the status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

fn is_segv(status: i32) -> bool {
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV
}

/// One that ends leaves the others what they announced, and the last one takes all of it back.
#[test]
fn an_announcement_that_ends_leaves_the_others() {
    let _alone = budget(64 << 20);
    let named = named(&bytes(2 * SLOT, 3));
    let file = File::open_writable(named.path()).unwrap();
    let first = file.map_mut(0, PAGE).unwrap();
    let one = faultless::file::before_fork();
    let second = file.map_mut(SLOT as u64, PAGE).unwrap();
    drop(faultless::file::before_fork());
    // It may not write to what the other one announced, either.
    let other = faultless::file::before_fork();
    assert!(is_segv(child(faultless::file::before_fork(), second.as_ptr(), true)));
    drop(other);
    assert_eq!(child(one, first.as_ptr(), false), 0);
    // SAFETY: as in `child`; this fork is not announced.
    let not_announced = unsafe { libc::fork() };
    if not_announced == 0 {
        // SAFETY: an access that ends this child.
        unsafe {
            libc::alarm(60);
            std::hint::black_box(first.as_ptr().read_volatile());
            libc::_exit(0);
        }
    }
    let mut status = 0;
    // SAFETY: a place for the status.
    assert_eq!(unsafe { libc::waitpid(not_announced, &mut status, 0) }, not_announced);
    assert!(is_segv(status));
    first.write(5, b"still the parent's").unwrap();
    file.sync().unwrap();
}
