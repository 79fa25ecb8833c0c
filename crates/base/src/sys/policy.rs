//! Memory policies (NUMA): where the program wants the pages of a part, by `mbind` or for all of its memory. Pages
//! that are brought by a copy are where the policy says. Pages that were made before stay where they were made.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::cpus::Set;
use super::raw::syscall;

/// Of `get_mempolicy`: the policy of an address; the nodes that may be used.
const OF_ADDRESS: usize = 1 << 1;
const ALLOWED: usize = 1 << 2;
/// Memory comes from where the thread runs, if there is some.
const DEFAULT: i32 = 0;
/// It comes from a node, if that has some.
const PREFERRED: i32 = 1;
/// Words for the nodes of the largest machine that Linux knows, and more.
const WORDS: usize = 64;

/// Nodes that this process may use; 0: that was not asked yet.
static NODES: AtomicUsize = AtomicUsize::new(0);

fn nodes() -> usize {
    let known = NODES.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let mut allowed = [0u64; WORDS];
    let args = [0, allowed.as_mut_ptr() as usize, size_of_val(&allowed) * 8, 0, ALLOWED, 0];
    // SAFETY: room for that many bits.
    let answer = unsafe { syscall(libc::SYS_get_mempolicy, args) };
    let count = allowed.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    let count = match answer {
        Ok(_) => count.max(1),
        // A kernel that does not know of nodes has one. A container may forbid the question.
        Err(_) => 1 + has_second() as usize,
    };
    NODES.store(count, Ordering::Relaxed);
    count
}

/// Whether the kernel shows a second node.
fn has_second() -> bool {
    let path = c"/sys/devices/system/node/node1";
    // SAFETY: reads the path alone.
    unsafe { syscall(libc::SYS_faccessat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, 0, 0, 0, 0]) }.is_ok()
}

/// Whether this process may have memory of several nodes, as far as [`probe`] found out.
pub(super) fn has_nodes() -> bool {
    NODES.load(Ordering::Relaxed) > 1
}

/// Finds that out, so that [`any_page_will_do`] takes little stack afterwards.
pub fn probe() {
    nodes();
}

/// Whether a page made by another thread is as good at `addr` as one that is brought there.
pub fn any_page_will_do(addr: usize) -> bool {
    !has_nodes() || is_default(addr)
}

/// What a thread asks for: a mode, and nodes where the mode needs some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    mode: i32,
    nodes: Set,
}

/// Modes as `numa_maps` names them. Of two that begin alike the longer one is first.
const MODES: [(&[u8], i32); 7] = [
    (b"default", DEFAULT),
    (b"prefer (many)", 5),
    (b"prefer", PREFERRED),
    (b"bind", 2),
    (b"interleave", 3),
    (b"local", 4),
    (b"weighted interleave", 6),
];

impl Policy {
    /// None of its own.
    pub const DEFAULT: Self = Self::new(DEFAULT, Set::new());

    pub const fn new(mode: i32, nodes: Set) -> Self {
        Self { mode, nodes }
    }

    /// What a text begins with, as `numa_maps` has it: `bind=static:0-1 …`. Flags say what becomes of it when the
    /// process gets other nodes: the nodes here are those of now. `None` where it is none, or its end is not there.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (name, mode) = MODES.iter().find(|(name, _)| text.starts_with(name))?;
        let rest = &text[name.len()..];
        let words = &rest[..rest.iter().position(|byte| byte.is_ascii_whitespace())?];
        let (flags, list) = match words.iter().position(|byte| *byte == b':') {
            Some(colon) => (&words[..colon], &words[colon + 1..]),
            None => (words, &[][..]),
        };
        let is_known = flags.is_empty() || flags[0] == b'=';
        is_known.then(|| Self::new(*mode, Set::parse(list)))
    }

    /// Makes it that of the calling thread; whether the kernel did.
    pub fn set(&self) -> bool {
        let mut nodes = self.nodes;
        let (at, bits) = match nodes.count() {
            0 => (0, 0),
            // The kernel reads one bit less.
            _ => (nodes.words().as_ptr() as usize, size_of::<Set>() * 8 + 1),
        };
        // SAFETY: as many bits as it says.
        unsafe { syscall(libc::SYS_set_mempolicy, [self.mode as usize, at, bits, 0, 0, 0]) }.is_ok()
    }
}

/// As [`super::Sys::prefer_node`].
pub(super) fn prefer(node: Option<usize>) {
    node.map_or(Policy::DEFAULT, |node| Policy::new(PREFERRED, Set::only(node))).set();
}

/// Whether the calling thread has no policy of its own.
pub(super) fn is_default_here() -> bool {
    is(0, 0)
}

pub(super) fn is_default(addr: usize) -> bool {
    is(addr, OF_ADDRESS)
}

fn is(addr: usize, of: usize) -> bool {
    let mut policy = DEFAULT;
    let args = [&raw mut policy as usize, 0, 0, addr, of, 0];
    // SAFETY: room for the answer.
    unsafe { syscall(libc::SYS_get_mempolicy, args) }.is_ok() && policy == DEFAULT
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::PAGE;
    use crate::sys::raw::{self, Access};

    #[test]
    fn what_the_program_wants_for_a_part_is_seen() {
        probe();
        let at = raw::map_private(2 * PAGE, Access::Write).unwrap();
        let before = is_default(at);
        let (bind, first) = (2, 1u64);
        let args = [at, PAGE, bind, &raw const first as usize, 64, 0];
        // SAFETY: fresh memory of this test's own, and a bit for the first node.
        if unsafe { syscall(libc::SYS_mbind, args) }.is_err() || !before {
            return faultless_testkit::skip("no policies here");
        }
        assert!(!is_default(at) && is_default(at + PAGE));
        assert!(nodes() > 1 || any_page_will_do(at), "there is only one");
        // SAFETY: as above.
        unsafe { raw::unmap(at, 2 * PAGE) };
    }
}
