//! A backing that fails where it is told to.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use faultless::file::Backing;

use crate::PAGE;

/// A backing in memory, that fails where it is told to.
#[derive(Clone, Default)]
pub struct Plain(pub Arc<State>);

#[derive(Default)]
pub struct State {
    pub bytes: Mutex<Vec<u8>>,
    /// The pages that cannot be read.
    pub unreadable: Mutex<Vec<usize>>,
    pub unwritable: AtomicBool,
    pub unsyncable: AtomicBool,
    /// The error of a write that fails; EIO unless it is set.
    pub errno: AtomicI32,
}

impl Plain {
    pub fn of(bytes: Vec<u8>) -> Self {
        Self(Arc::new(State { bytes: bytes.into(), ..State::default() }))
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl Backing for Plain {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (at, end) = (offset as usize, offset as usize + buffer.len());
        buffer.copy_from_slice(&self.0.bytes.lock().unwrap()[at..end]);
        let bad = |page: &usize| page * PAGE < end && (page + 1) * PAGE > at;
        if self.0.unreadable.lock().unwrap().iter().any(bad) { Err(eio()) } else { Ok(()) }
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.0.unwritable.load(Ordering::Relaxed) {
            let errno = self.0.errno.load(Ordering::Relaxed);
            return Err(if errno == 0 { eio() } else { io::Error::from_raw_os_error(errno) });
        }
        self.0.bytes.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn grow(&self, length: u64) -> io::Result<()> {
        self.0.bytes.lock().unwrap().resize(length as usize, 0);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.bytes.lock().unwrap().truncate(length as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.0.unsyncable.load(Ordering::Relaxed) { Err(eio()) } else { Ok(()) }
    }
}
