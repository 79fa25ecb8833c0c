//! The forked children of a region's process, as its reader knows them: a table of fixed size, because the reader
//! must not allocate.

use crate::events::moved_ranges::Pieces;
use crate::events::remote_fill;

/// Children at a time; others are refused.
const MOST: usize = 1024;

/// A child, or the child of one.
pub struct Child {
    /// The kernel's descriptor for it.
    pub uffd: i32,
    /// Which part of the region that serves.
    pub stripe: usize,
    /// Which bytes belong where, until all of it is an error.
    pub pieces: Option<Pieces>,
    /// It is let go of as soon as all that it misses is an error.
    pub is_refused: bool,
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
        Self { all: Vec::with_capacity(2 * MOST), spare: None }
    }

    /// Whether another one can be served.
    pub fn have_room(&self) -> bool {
        self.spare.is_some() && self.all.len() < MOST
    }

    /// Adds one; false: not even one that is refused has a place.
    pub fn add(&mut self, child: Child) -> bool {
        let has_place = self.all.len() < self.all.capacity();
        if has_place {
            self.all.push(child);
        }
        has_place
    }

    /// The one of a descriptor.
    pub fn get(&mut self, uffd: i32) -> Option<&mut Child> {
        self.all.iter_mut().find(|child| child.uffd == uffd)
    }

    /// One after the other.
    pub fn at(&self, i: usize) -> Option<&Child> {
        self.all.get(i)
    }

    /// Takes one out; another one has its place then.
    pub fn remove(&mut self, i: usize) {
        self.all.swap_remove(i);
    }

    /// Keeps those for which `keep` says so.
    pub fn retain(&mut self, keep: impl FnMut(&Child) -> bool) {
        self.all.retain(keep);
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Something of them may still be brought.
    pub fn have_pieces(&self) -> bool {
        self.all.iter().any(|child| child.pieces.is_some())
    }

    /// Nothing of those is brought any more of which `done` says so.
    pub fn forget_pieces(&mut self, done: impl Fn(i32, &Pieces) -> bool) {
        for child in &mut self.all {
            child.pieces.take_if(|pieces| done(child.uffd, pieces));
        }
    }

    /// Some are still to be let go of.
    pub fn has_refused(&self) -> bool {
        self.all.iter().any(|child| child.is_refused)
    }

    /// All of them are.
    pub fn refuse_all(&mut self) {
        self.all.iter_mut().for_each(|child| child.is_refused = true);
    }

    /// There is no number for another descriptor: the next child's is had all the same, and refused. False: it cannot
    /// be had.
    pub fn use_spare(&mut self) -> bool {
        self.spare.take().map(remote_fill::close).is_some()
    }

    /// Has a spare descriptor again, another one of `fd`.
    pub fn make_spare(&mut self, fd: i32) {
        if self.spare.is_none() {
            // SAFETY: a new descriptor of our own, in the table of the reader.
            self.spare = Some(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) }).filter(|spare| *spare >= 0);
        }
    }
}
