//! Files: their cache, and parts of them that stay in memory, with the buffer protocol.

mod bytes;
mod error;
pub mod fork;
pub mod group;
mod long;
pub mod mapping;
pub mod process;
mod view;

use std::sync::{Arc, Mutex, PoisonError};

use faultless::file::File as Cached;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::Size;
use error::{failed, part};
use group::CacheGroup;
use mapping::Mapping;
use view::View;

/// A file whose pages are cached in this process, in huge pages: what `faultless.open` gives.
///
/// All that a process opens of a file share one cache, with each other and with `memmap`. Changes are in the file
/// after `sync`, after `close` of the last of them, or at the end of the program. **Killed before that, the
/// program has lost it.** Other ways to read the file do not see it before.
///
/// Signals are handled while it reads, maps, prefetches or syncs. An exception of a handler, such as
/// `KeyboardInterrupt`, ends the call. What `prefetch`, `sync` or `close` has begun goes on in the background.
///
/// Parameters
/// ----------
/// fd : int
///     A descriptor, used for what it was opened for. It may be closed afterwards.
/// huge_pages : bool
///     Whether 2 MiB come at a time. If not, single pages of 4 KiB come: for a file of which few bytes are read.
/// group : CacheGroup, optional
///     Files with which it shares a budget.
///
/// Raises
/// ------
/// OSError
///     It is no regular file, or cannot be had. With a group: it is open in this process outside of it (EBUSY).
///
/// Examples
/// --------
/// >>> import tempfile
/// >>> with tempfile.TemporaryFile() as plain, faultless.File(plain.fileno()) as file:
/// ...     file.write(0, b"bytes")
/// ...     file.read(1, 3)
/// 5
/// b'yte'
#[pyclass(frozen, weakref, module = "faultless")]
pub struct File(Mutex<Option<Arc<Cached>>>);

impl File {
    /// The file, for one call: another thread that closes it meanwhile does not take it away.
    fn file(&self) -> PyResult<Arc<Cached>> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.clone().ok_or_else(|| PyValueError::new_err("the file is closed"))
    }
}

#[pymethods]
impl File {
    #[new]
    #[pyo3(signature = (fd, *, huge_pages = true, group = None))]
    fn new(py: Python<'_>, fd: i32, huge_pages: bool, group: Option<PyRef<'_, CacheGroup>>) -> PyResult<Self> {
        let group = group.map(|group| group.0.clone());
        let open = || group::open(fd, huge_pages, group);
        Ok(Self(Mutex::new(Some(Arc::new(py.detach(open).map_err(failed)?)))))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.file()?.len() as usize)
    }

    fn __repr__(&self) -> String {
        self.file().map_or_else(|_| "File(closed)".into(), |file| format!("File({} bytes)", file.len()))
    }

    /// Writes back what has changed, if the file may be written, and forgets the file. Mappings of it stay.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     Something could not be written. The file is closed all the same. What could not be written stays in memory
    ///     while something else of the file is open.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.close()
    /// >>> file.closed
    /// True
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(file) = file else { return Ok(()) };
        if file.is_writable() { long::sync(py, file, 0..u64::MAX) } else { Ok(()) }
    }

    /// Whether it was closed.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> faultless.File(plain.fileno()).closed
    /// False
    #[getter]
    fn closed(&self) -> bool {
        self.file().is_err()
    }

    /// Bytes of the file that are in memory.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> faultless.File(plain.fileno()).present
    /// 0
    #[getter]
    fn present(&self) -> PyResult<usize> {
        Ok(self.file()?.present())
    }

    /// Reads bytes.
    ///
    /// Parameters
    /// ----------
    /// offset : int
    ///     Where they begin.
    /// length : int
    ///     How many; fewer come at the end of the file.
    ///
    /// Returns
    /// -------
    /// bytes
    ///
    /// Raises
    /// ------
    /// OSError
    ///     They cannot be read.
    /// MemoryError
    ///     There is no memory for that many.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.read(0, 10)
    /// b''
    fn read<'py>(&self, py: Python<'py>, offset: Size, length: Size) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.file()?;
        let length = (file.len() as usize).saturating_sub(offset.0).min(length.0);
        bytes::of(py, length, |bytes| long::read(py, &file, bytes, offset.0))
    }

    /// Reads bytes into a buffer.
    ///
    /// Parameters
    /// ----------
    /// offset : int
    ///     Where they begin.
    /// buffer : buffer
    ///     Writable and without gaps: a bytearray, an array, a memoryview.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many bytes: fewer than the buffer has at the end of the file.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     They cannot be read.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.readinto(0, bytearray(10))
    /// 0
    fn readinto(&self, py: Python<'_>, offset: Size, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let file = self.file()?;
        let view = View::of(buffer, ffi::PyBUF_WRITABLE)?;
        let (at, length) = view.bytes();
        // SAFETY: the buffer is writable, and its view keeps it. As with any `readinto`, the program leaves it alone
        // meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, length) };
        long::read(py, &file, bytes, offset.0)
    }

    /// Writes bytes. The file grows as far as it takes.
    ///
    /// Parameters
    /// ----------
    /// offset : int
    ///     Where they begin.
    /// data : buffer
    ///     Without gaps: bytes, an array, a memoryview.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many bytes: all of them.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     The file is not open for writing, is too large, or its pages cannot be read.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.write(5, b"abc")
    /// 3
    /// >>> len(file)
    /// 8
    fn write(&self, py: Python<'_>, offset: Size, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let file = self.file()?;
        let view = View::of(data, ffi::PyBUF_SIMPLE)?;
        let (at, length) = view.bytes();
        // SAFETY: the view keeps it. As with any write, the program leaves it alone meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, length) };
        long::write(py, &file, bytes, offset.0)
    }

    /// Brings parts of the file into memory, in their order, with many requests to the device at a time.
    ///
    /// Parameters
    /// ----------
    /// parts : list of (int, int)
    ///     Where each begins and ends, in bytes, inside the file.
    /// progress : callable, optional
    ///     Called with the bytes that are there by then, after up to 32 MiB each. What it raises ends the call.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many bytes of them are in memory then: fewer than asked for where the knob ``budget`` has no room for
    ///     more. Read those, and call it again with the rest.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     Some bytes cannot be read. The others have come all the same.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.truncate(1 << 20)
    /// >>> file.prefetch([(0, 1000), (9000, 9100)], progress=lambda done: print(done, "bytes"))
    /// 1100 bytes
    /// 1100
    #[pyo3(signature = (parts, *, progress = None))]
    fn prefetch(
        &self,
        py: Python<'_>,
        parts: Vec<(Size, Size)>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let file = self.file()?;
        let parts: Vec<_> = parts.into_iter().map(|(start, stop)| start.0 as u64..stop.0 as u64).collect();
        long::prefetch(py, file, parts, progress)
    }

    /// Says how a part will be used. No byte changes.
    ///
    /// Parameters
    /// ----------
    /// advice : {"normal", "sequential", "random", "willneed", "dontneed", "huge", "nohuge"}
    ///     As of `madvise`. The first three are about all reads of this object, and faults in the part.
    /// start, stop : int
    ///     In bytes, inside the file; to its end unless a stop is given.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     The part is not inside the file, or some of it cannot be read.
    /// ValueError
    ///     There is no such advice.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.truncate(8192)
    /// >>> file.advise("willneed")
    /// >>> file.present
    /// 8192
    #[pyo3(signature = (advice, start = Size(0), stop = None), text_signature = "($self, advice, start=0, stop=None)")]
    fn advise(&self, py: Python<'_>, advice: &str, start: Size, stop: Option<Size>) -> PyResult<()> {
        let file = self.file()?;
        let part = part(&file, start, stop);
        let advice = group::advice(advice)?;
        py.detach(|| file.advise(part, advice)).map_err(failed)
    }

    /// Brings a part into memory, and keeps it there.
    ///
    /// Parameters
    /// ----------
    /// start, stop : int
    ///     In bytes, inside the file; to its end unless a stop is given.
    /// writable : bool
    ///     Whether it may be written to.
    /// lazy : bool
    ///     Whether its pages come when they are touched, and go again: it may be larger than memory. A page that cannot
    ///     be read is a SIGBUS then.
    /// private : bool
    ///     Whether it may be changed in this mapping alone. It is lazy in any case; the file may be open for reading.
    ///
    /// Returns
    /// -------
    /// Mapping
    ///     A buffer: `numpy.frombuffer` makes an array of it.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     It cannot be read, the file is not open for writing, or a lazy mapping cannot be had here.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.truncate(100)
    /// >>> memoryview(file.map(10, 20, writable=True))[3] = 7
    /// >>> file.read(13, 1)
    /// b'\x07'
    #[pyo3(signature = (start = Size(0), stop = None, *, writable = false, lazy = false, private = false),
           text_signature = "($self, start=0, stop=None, *, writable=False, lazy=False, private=False)")]
    fn map(
        &self,
        py: Python<'_>,
        start: Size,
        stop: Option<Size>,
        writable: bool,
        lazy: bool,
        private: bool,
    ) -> PyResult<Mapping> {
        let file = self.file()?;
        let part = part(&file, start, stop);
        long::map(py, &file, part, (writable, lazy, private)).map(Mapping)
    }

    /// Has writes to lazy mappings of this file wait until snapshots have their pages. Before the first lazy mapping.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     A lazy mapping came before, or cannot be had here, or the kernel does not deliver its own faults.
    ///
    /// Examples
    /// --------
    /// >>> import contextlib, tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> with contextlib.suppress(OSError):  # where the kernel does not deliver its own faults
    /// ...     file.allow_snapshots()
    fn allow_snapshots(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.allow_snapshots()).map_err(failed)
    }

    /// Writes back what has changed in a part, and waits until it is durable. An error that another call met since the
    /// last time is told here, once. What could not be written stays in memory.
    ///
    /// Parameters
    /// ----------
    /// start, stop : int
    ///     In bytes; to the end of the file unless a stop is given.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     It could not be written, or the file is not open for writing.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.sync()
    #[pyo3(signature = (start = Size(0), stop = None), text_signature = "($self, start=0, stop=None)")]
    fn sync(&self, py: Python<'_>, start: Size, stop: Option<Size>) -> PyResult<()> {
        let file = self.file()?;
        let part = part(&file, start, stop);
        long::sync(py, file, part)
    }

    /// Makes the file shorter, or longer by zeroes.
    ///
    /// Parameters
    /// ----------
    /// length : int
    ///     In bytes.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     A mapping reaches behind the new end (EBUSY), or the file is not open for writing.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.truncate(10)
    /// >>> file.read(0, 20)
    /// b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00'
    fn truncate(&self, py: Python<'_>, length: Size) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.set_len(length.0 as u64)).map_err(failed)
    }

    /// Has a part read as zero, and take no room in the file any more, where the file system can do that.
    ///
    /// Parameters
    /// ----------
    /// start, stop : int
    ///     In bytes, inside the file.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     The file is not open for writing, or the part is not inside it.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.write(0, b"abcdef")
    /// 6
    /// >>> file.punch_hole(2, 4)
    /// >>> file.read(0, 6)
    /// b'ab\x00\x00ef'
    fn punch_hole(&self, py: Python<'_>, start: Size, stop: Size) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.punch_hole(start.0 as u64..stop.0 as u64)).map_err(failed)
    }

    /// Gives memory back, but for what is mapped or not yet written.
    ///
    /// Parameters
    /// ----------
    /// start, stop : int
    ///     In bytes. Only 2 MiB that lie inside this part go, also the last ones of the file.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many bytes went.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.drop()
    /// 0
    #[pyo3(signature = (start = Size(0), stop = None), text_signature = "($self, start=0, stop=None)")]
    fn drop(&self, py: Python<'_>, start: Size, stop: Option<Size>) -> PyResult<usize> {
        let file = self.file()?;
        let part = start.0 as u64..stop.map_or(u64::MAX, |stop| stop.0 as u64);
        Ok(py.detach(|| file.drop_range(part)))
    }
}
