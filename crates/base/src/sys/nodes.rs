//! On which node of a machine (NUMA) memory lies, and on which one a thread runs.

use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

use super::policy;
use super::raw::syscall;
use crate::{PAGE, SLOT, Span};

/// Processors whose node is remembered.
const CPUS: usize = 1024;

/// The node of each processor and one more; 0: that was not asked yet.
static OF_CPU: [AtomicU16; CPUS] = [const { AtomicU16::new(0) }; CPUS];

/// Whether this process may have memory of several nodes.
pub(super) fn are_several() -> bool {
    policy::probe();
    policy::has_nodes()
}

/// The processor on which this thread runs, and its node.
pub(super) fn here() -> Option<(usize, usize)> {
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: room for both answers.
    let answer = unsafe { syscall(libc::SYS_getcpu, [&raw mut cpu as usize, &raw mut node as usize, 0, 0, 0, 0]) };
    answer.is_ok().then_some((cpu as usize, node as usize))
}

/// The node of `cpu`, if that was asked, or noted.
pub(super) fn known(cpu: usize) -> Option<usize> {
    (OF_CPU.get(cpu)?.load(Relaxed) as usize).checked_sub(1)
}

/// `cpu` is on this node.
pub(super) fn note(cpu: usize, node: usize) {
    if let Some(place) = OF_CPU.get(cpu) {
        place.store(node as u16 + 1, Relaxed);
    }
}

/// The node of `cpu`, on which the calling thread runs, or ran a moment ago: then perhaps that of where it is now.
pub(super) fn of_cpu(cpu: usize) -> usize {
    known(cpu).unwrap_or_else(|| {
        let Some((here, node)) = here() else { return 0 };
        note(here, node);
        node
    })
}

/// The node from which the kernel takes new memory for this thread; `None` where the thread has a policy of its own.
pub(super) fn home() -> Option<usize> {
    policy::is_default_here().then(here).flatten().map(|(_, node)| node)
}

/// The node of a slot: of its first page, one in the middle, and the last. `None` where they differ, where one is
/// missing, or where the kernel does not say.
pub(super) fn of_slot(slot: Span) -> Option<usize> {
    let pages = [slot.start, slot.start + SLOT / 2, slot.end - PAGE];
    let mut nodes = [-1i32; 3];
    let args = [0, pages.len(), pages.as_ptr() as usize, 0, nodes.as_mut_ptr() as usize, 0];
    // SAFETY: without target nodes the call only says where pages are; room for the answers.
    unsafe { syscall(libc::SYS_move_pages, args) }.ok()?;
    let first = usize::try_from(nodes[0]).ok()?;
    nodes.iter().all(|node| *node == nodes[0]).then_some(first)
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::sys::raw::{self, Access};

    #[test]
    fn a_slot_lies_where_its_thread_touched_it() {
        let at = raw::map_private(2 * SLOT, Access::Write).unwrap().next_multiple_of(SLOT);
        let slot = Span::new(at, SLOT);
        assert_eq!(of_slot(slot), None, "nothing is there yet");
        // SAFETY: fresh memory of this test's own.
        unsafe { core::ptr::write_bytes(at as *mut u8, 1, SLOT) };
        let (Some(node), Some(home)) = (of_slot(slot), home()) else {
            return faultless_testkit::skip("the kernel does not say");
        };
        assert!(are_several() || node == home, "{node}, {home}");
        assert_eq!(of_cpu(here().unwrap().0), home);
    }
}
