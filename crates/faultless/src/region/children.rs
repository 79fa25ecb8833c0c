//! The forked children of a region's process, as its reader knows them: a table of fixed size, because the reader must not allocate.

use super::elsewhere;
use super::pieces::Pieces;

/// Children at a time; others find an error where something is missing.
const MOST: usize = 1024;

/// A child, or the child of one.
pub struct Child {
    /// The kernel's descriptor for it.
    pub uffd: i32,
    /// Which part of the region that serves.
    pub stripe: usize,
    /// What belongs where, if there was memory to note that.
    pub pieces: Option<Pieces>,
}

/// All of them.
pub struct Children {
    all: Vec<Child>,
    /// A descriptor that is closed so that a child's can be had, which is refused then.
    spare: Option<i32>,
}

impl Children {
    /// None yet.
    pub fn new() -> Self {
        Self { all: Vec::with_capacity(MOST), spare: None }
    }

    /// Adds one, or gives it back if there is no room.
    pub fn add(&mut self, child: Child) -> Result<(), Child> {
        if self.spare.is_none() || self.all.len() == MOST {
            return Err(child);
        }
        self.all.push(child);
        Ok(())
    }

    /// The one of a descriptor.
    pub fn get(&mut self, uffd: i32) -> Option<&mut Child> {
        self.all.iter_mut().find(|child| child.uffd == uffd)
    }

    /// One of them.
    pub fn last(&self) -> Option<&Child> {
        self.all.last()
    }

    /// Takes one out.
    pub fn remove(&mut self, uffd: i32) -> Option<Child> {
        let at = self.all.iter().position(|child| child.uffd == uffd)?;
        Some(self.all.swap_remove(at))
    }

    /// Keeps those for which `keep` says so.
    pub fn retain(&mut self, keep: impl FnMut(&Child) -> bool) {
        self.all.retain(keep);
    }

    /// There is no number for another descriptor: the next child's is had all the same, and refused.
    pub fn use_spare(&mut self) {
        if let Some(spare) = self.spare.take() {
            elsewhere::close(spare);
        }
    }

    /// Has a spare descriptor again, another one of `fd`.
    pub fn make_spare(&mut self, fd: i32) {
        if self.spare.is_none() {
            // SAFETY: a new descriptor of our own, in the table of the reader.
            self.spare = Some(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) }).filter(|spare| *spare >= 0);
        }
    }
}
