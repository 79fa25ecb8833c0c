//! Writing a snapshot to a file, while what it is of goes on changing.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use faultless_base::sys::raw;
use faultless_base::{PAGE, SLOT};

use crate::background::{Background, Priority, Work};
use crate::error::Error;
use crate::region::Snapshot;
use crate::region::snapshot::Room;
use crate::region::target::Target;

/// Bytes that are written at a time.
const STEP: usize = SLOT;

/// How a snapshot is saved.
///
/// ```no_run
/// # use faultless::region::{Delivery, Region};
/// use faultless::region::Save;
///
/// # let region = Region::builder(64 << 20).delivery(Delivery::Thread).build()?;
/// let saving = Save::new().rate(100 << 20).start(&region.snapshot()?, "state.bin".as_ref())?;
/// // The region may change meanwhile.
/// println!("{} of {} bytes", saving.ready(), saving.bytes());
/// saving.wait()?;
/// # Ok::<(), faultless::region::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Save {
    header: Vec<u8>,
    rate: Option<u64>,
    part: Option<Range<usize>>,
}

/// What all steps write to.
struct Saving {
    snapshot: Snapshot,
    part: Range<usize>,
    target: Target,
    /// Bytes that came first.
    header: usize,
    /// When, in nanoseconds.
    begun: u64,
    /// Bytes a second.
    rate: Option<u64>,
    /// Steps that have not ended.
    left: AtomicUsize,
    /// Memory to read to, while no step uses it.
    rooms: Mutex<Vec<Room>>,
}

impl Save {
    /// All of it, as fast as it goes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that come first in the file.
    pub fn header(self, header: impl Into<Vec<u8>>) -> Self {
        Self { header: header.into(), ..self }
    }

    /// How many bytes a second are written, at most.
    pub fn rate(self, bytes: u64) -> Self {
        Self { rate: Some(bytes.max(1)), ..self }
    }

    /// A part of the snapshot, instead of all of it.
    pub fn part(self, bytes: Range<usize>) -> Self {
        Self { part: Some(bytes), ..self }
    }

    /// Writes a snapshot to a file in the background. The answer has its progress, and its end to wait for; when it is
    /// dropped the work goes on. The file gets its name once all of it is there and durable. Until then a file that had
    /// the name before stays as it is. After an error, or when it is cancelled, nothing is left of it. Parts of 2 MiB
    /// that are zero become holes.
    ///
    /// A symbolic link is replaced by the file. A directory, a device node, a FIFO or a socket is refused
    /// ([`Error::NoFile`]).
    pub fn start(&self, snapshot: &Snapshot, path: &Path) -> Result<Background, Error> {
        let part = self.part.clone().unwrap_or(0..snapshot.len());
        if part.is_empty() || part.end > snapshot.len() {
            return Err(Error::Outside);
        }
        let bell = snapshot.bell()?;
        let mut target = Target::new(path)?;
        if self.header.len().is_multiple_of(PAGE) {
            target.open_direct();
        }
        target.set_length(self.header.len() + part.len())?;
        target.write(&self.header, 0)?;
        let steps = part.len().div_ceil(STEP);
        let saving = Saving {
            snapshot: snapshot.clone(),
            part,
            target,
            header: self.header.len(),
            begun: raw::now_ns(),
            rate: self.rate,
            left: AtomicUsize::new(steps),
            rooms: Mutex::default(),
        };
        Background::start(Priority::Ordinary, steps, STEP, bell, saving)
    }

    /// Writes bytes of the program's to a file in the same way, all of them before this returns, as fast as it goes.
    pub fn write(&self, bytes: &[u8], path: &Path) -> Result<(), Error> {
        let mut file = self.create(path)?;
        file.write(bytes)?;
        file.end()
    }

    /// Begins a file that bytes of the program's are written to in the same way, piece by piece.
    pub fn create(&self, path: &Path) -> Result<Written, Error> {
        let target = Target::new(path)?;
        target.write(&self.header, 0)?;
        Ok(Written { target, length: self.header.len() })
    }
}

/// A file that is being written. It has its name after [`Written::end`]; if it is dropped before, nothing is left of it.
pub struct Written {
    target: Target,
    length: usize,
}

impl Written {
    /// Writes what comes next.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.target.write(bytes, self.length)?;
        self.length += bytes.len();
        Ok(())
    }

    /// That was all: it gets its name when it is durable.
    pub fn end(self) -> Result<(), Error> {
        self.target.end()
    }
}

impl Saving {
    /// Writes a part of the snapshot at a place behind the header. After the last one the file gets its name.
    fn write(&self, part: Range<usize>, at: usize) -> Result<(), Error> {
        let rooms = || self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = rooms().pop();
        let mut room = kept.map_or_else(|| Room::new(STEP), Ok)?;
        let bytes = &mut room.bytes()[..part.len()];
        self.snapshot.read(part.start, bytes)?;
        // SAFETY: any bytes are words.
        let (before, words, behind) = unsafe { bytes.align_to::<u64>() };
        let is_zero = before.iter().chain(behind).all(|byte| *byte == 0) && words.iter().all(|word| *word == 0);
        if !is_zero {
            self.target.write_direct(bytes, self.header + at)?;
        }
        rooms().push(room);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 { self.target.end() } else { Ok(()) }
    }
}

impl Work for Saving {
    fn due(&self, step: usize) -> Result<u64, Error> {
        self.snapshot.check()?;
        let takes = |rate| (step * STEP) as f64 / rate as f64 * 1e9;
        Ok(self.rate.map_or(0, |rate| self.begun.saturating_add(takes(rate) as u64)))
    }

    fn step(&self, step: usize) -> Result<bool, Error> {
        let at = step * STEP;
        let part = self.part.start + at..self.part.end.min(self.part.start + at + STEP);
        self.write(part, at).map(|()| true)
    }
}
