//! A lock that many may hold to read, and one to write: first come, first served. Readers that stand next to each other
//! in the queue have it together, as with the lock of an address space in Linux 5.1.

use std::collections::VecDeque;

/// Picoseconds.
type Ps = u64;

/// How it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With others.
    Read,
    /// Alone.
    Write,
}

/// Whether it is held at once.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// Yes.
    Now,
    /// It is in the queue.
    Later,
}

/// The lock.
#[derive(Default)]
pub struct Shared {
    readers: usize,
    writes: bool,
    waiting: VecDeque<(usize, Mode, Ps)>,
}

impl Shared {
    /// A processor wants it.
    pub fn take(&mut self, cpu: usize, mode: Mode, wake: Ps) -> Taken {
        if self.waiting.is_empty() && self.is_free(mode) {
            self.hold(mode);
            return Taken::Now;
        }
        self.waiting.push_back((cpu, mode, wake));
        Taken::Later
    }

    /// One that holds it lets it go.
    pub fn give(&mut self, mode: Mode) {
        match mode {
            Mode::Read => self.readers -= 1,
            Mode::Write => self.writes = false,
        }
    }

    /// The next one in the queue, if it may have the lock now, and how long it takes to wake. It holds it from now on.
    pub fn admit(&mut self) -> Option<(usize, Ps)> {
        let (cpu, mode, wake) = *self.waiting.front()?;
        if !self.is_free(mode) {
            return None;
        }
        self.waiting.pop_front();
        self.hold(mode);
        Some((cpu, wake))
    }

    fn is_free(&self, mode: Mode) -> bool {
        !self.writes && (mode == Mode::Read || self.readers == 0)
    }

    fn hold(&mut self, mode: Mode) {
        match mode {
            Mode::Read => self.readers += 1,
            Mode::Write => self.writes = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_go_together_and_none_passes_a_writer() {
        let mut lock = Shared::default();
        assert_eq!([0, 1].map(|cpu| lock.take(cpu, Mode::Read, 0)), [Taken::Now, Taken::Now]);
        assert_eq!(lock.take(2, Mode::Write, 7), Taken::Later);
        assert_eq!([3, 4].map(|cpu| lock.take(cpu, Mode::Read, 9)), [Taken::Later, Taken::Later]);
        lock.give(Mode::Read);
        assert_eq!(lock.admit(), None);
        lock.give(Mode::Read);
        assert_eq!(lock.admit(), Some((2, 7)));
        assert_eq!(lock.admit(), None);
        lock.give(Mode::Write);
        assert_eq!((lock.admit(), lock.admit(), lock.admit()), (Some((3, 9)), Some((4, 9)), None));
    }
}
