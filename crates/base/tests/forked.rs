//! Page tables in a forked child. Alone in its process: pages that a fork shares cannot be moved, which others test.

use faultless_base::sys::pagemap::{PRESENT, count, open};
use faultless_base::sys::raw::{self, Access, syscall};
use faultless_base::{PAGE, Span};

/// A child inherits a descriptor that goes on telling of its parent.
#[test]
fn a_child_looks_at_its_own_pages() {
    open();
    let at = raw::map_private(4 * PAGE, Access::Write).unwrap();
    let span = Span::new(at, 4 * PAGE);
    // SAFETY: fresh memory of this test's own, of which a huge page has no place.
    unsafe { (0..3).for_each(|page| ((at + page * PAGE) as *mut u8).write_volatile(1)) };
    if count(span, PRESENT, 0).is_none() {
        return faultless_testkit::skip("no PAGEMAP_SCAN");
    }
    // SAFETY: the child drops pages of its copy, looks, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            syscall(libc::SYS_madvise, [at, 2 * PAGE, libc::MADV_DONTNEED as usize, 0, 0, 0]).unwrap();
            let before = count(span, PRESENT, 0);
            open();
            let after = count(span, PRESENT, 0);
            libc::_exit((before.is_some() as i32) | ((after != Some(1)) as i32) << 1);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0, "what it was told was not of its own pages");
    }
    assert_eq!(count(span, PRESENT, 0), Some(3), "and what its parent is told is of the parent's");
}
