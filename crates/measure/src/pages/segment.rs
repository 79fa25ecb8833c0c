//! Segments of System V shared memory with the pages of processes that `run` does not wait for.
//!
//! Such a segment was marked for removal when it was made; it has no key, and its owner alone may attach it.

use std::io;
use std::ptr::null;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use faultless_page::layout::Whole;
use faultless_page::listing::MOST;

/// Mode of a segment of ours: for its owner, and marked for removal.
const MODE: &str = "1600";

/// A segment as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub id: i32,
    /// The process that made it.
    pub pid: u32,
    /// Its owner.
    pub user: u32,
    bytes: usize,
}

/// The segments that may hold a page.
pub fn all() -> Vec<Listed> {
    std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default().lines().filter_map(listed).collect()
}

fn listed(line: &str) -> Option<Listed> {
    let field: Vec<&str> = line.split_whitespace().collect();
    // key shmid perms size cpid lpid nattch uid …
    let [key, id, mode, bytes, pid, _, attached, user, ..] = field[..] else { return None };
    let bytes = bytes.parse().ok()?;
    let fits = (1..=Whole::bytes(MOST)).contains(&bytes) && bytes % 4096 == 0;
    let ours = key == "0" && mode == MODE && attached != "0" && fits;
    let listed = Listed { id: id.parse().ok()?, pid: pid.parse().ok()?, user: user.parse().ok()?, bytes };
    ours.then_some(listed)
}

fn state(id: i32) -> Option<libc::shmid_ds> {
    // SAFETY: zero bytes are a value of the structure, which is writable.
    unsafe {
        let mut state: libc::shmid_ds = std::mem::zeroed();
        (libc::shmctl(id, libc::IPC_STAT, &mut state) == 0).then_some(state)
    }
}

/// A segment that is attached here, so that it stays when its process ends.
#[derive(Debug)]
pub struct Segment {
    /// Its number.
    pub id: i32,
    words: &'static [AtomicU64],
}

impl Segment {
    /// Attaches it.
    pub fn attach(listed: &Listed) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice. Its size is what the kernel says of the segment
        // attached, which is not always the listed one; all of it is read and written as atomics.
        unsafe {
            let at = libc::shmat(listed.id, null(), 0);
            if at.addr() == usize::MAX {
                return Err(io::Error::last_os_error());
            }
            if state(listed.id).is_none_or(|state| state.shm_segsz != listed.bytes) {
                libc::shmdt(at);
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(Self { id: listed.id, words: slice::from_raw_parts(at.cast(), listed.bytes / size_of::<u64>()) })
        }
    }

    /// What is in it.
    pub fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    /// Writes the number at byte `at`, if there is one.
    pub fn set(&self, at: usize, value: u64) -> Option<()> {
        self.words.get(at / size_of::<u64>()).map(|word| word.store(value, Ordering::Relaxed))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: attached by `attach`; no other code has the slice.
        unsafe { libc::shmdt(self.words.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = |mode: &str, bytes: u32, attached: u32| {
            format!(
                "         0      32769  {mode}  {bytes}  4711  4711  {attached}  1000  1000  1000  1000  0 0 0"
            )
        };
        let ours = Listed { id: 32769, pid: 4711, user: 1000, bytes: 4096 };
        assert_eq!(listed(&line("1600", 4096, 1)), Some(ours));
        let large = Whole::bytes(MOST) as u32;
        assert!(listed(&line("1600", large, 1)).is_some());
        for other in [
            line("1600", large + 4096, 1),
            line("600", 4096, 1),
            line("1600", 4097, 1),
            line("1600", 4096, 0),
            "key shmid".into(),
        ] {
            assert_eq!(listed(&other), None, "{other}");
        }
    }

    const LINE: &str = "         0      32769  1600  4096  4711  4711  1  1000  1000  1000  1000  0 0 0";

    proptest! {
        #![proptest_config(cases())]

        /// The attached segment has a size that a page may have.
        #[test]
        fn any_line_is_borne(line in garbled(&[LINE, "       key      shmid perms                  size\n"])) {
            let line = String::from_utf8_lossy(&line);
            if let Some(found) = listed(&line) {
                prop_assert!((4096..=Whole::bytes(MOST)).contains(&found.bytes) && found.bytes % 4096 == 0);
                prop_assert!(line.contains(&found.id.to_string().replace('-', "")) || found.id == 0);
            }
        }
    }
}
