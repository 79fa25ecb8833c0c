"""`memmap`: arrays of files, as numpy.memmap has them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import math
import mmap
import operator
import os
import pathlib
import stat
import sys
import weakref
from typing import Any, ContextManager, Literal, Sequence, SupportsIndex, Union

import numpy
from numpy.typing import DTypeLike

from ._faultless import File, Mapping, _fits, _is_cached, _sync_all
from ._snapshots import Snapshot, snapshot

Memory = Union[Mapping, mmap.mmap]

MODES = ("r", "c", "r+", "w+")
WORDS = {"readonly": "r", "copyonwrite": "c", "readwrite": "r+", "write": "w+"}

_by_kernel: dict[tuple[int, int], list[weakref.ref[mmap.mmap]]] = {}
"""Mappings of the kernel's, by file: what maps such a file meanwhile has to see the same bytes."""


class memmap(numpy.ndarray[Any, Any]):
    """An array of a file, as numpy.memmap. Its memory is the cache of the file in this process, in huge pages.

    All of it is in memory when it is made, unless it is lazy, so an access takes no page fault that waits for the device.
    Arrays of the same file are the same memory. What is written is in the file after `flush`, when the last array of the file is gone, or at
    the end of the program. **Killed before that, the program has lost it**, and other ways to read the file do not see it.

    The kernel maps the file, as for numpy.memmap, with mode ``"c"`` unless it is lazy, if the part is larger than half of the memory that is
    available, and if it is no regular file. ``array.is_cached`` says so.

    Parameters
    ----------
    filename : str, os.PathLike or file
        The file's name, or a file with ``fileno``, ``seek``, ``tell`` and ``read``.
    dtype : data-type
        Of an element.
    mode : {"r+", "r", "w+", "c"}
        To read and write; to read; to read and write a file that is made or emptied; to read, and to change in memory alone.
        ``"readwrite"``, ``"readonly"``, ``"write"`` and ``"copyonwrite"`` are the same.
    offset : int
        Where the array begins in the file, in bytes.
    shape : int or sequence of int, optional
        All of the file unless it is given. The file grows as far as it takes, with ``"r+"`` and ``"w+"``.
    order : {"C", "F"}
        How elements lie.
    lazy : bool
        Whether pages come when they are touched, and go again beyond the knob ``budget``: for a file that is larger than
        memory. A page that cannot be read is a SIGBUS then. `flush` writes what has changed, and nothing else. With ``"c"``,
        pages that were changed stay in memory. The kernel maps the file where a system call on such memory would fail (an
        ordinary user without userfaultfd, a container).
    snapshots : bool
        Whether `snapshot` of it takes no copy of all of it, while it may be written to. It is lazy then, and no array of the file
        was lazy before without this. The first write to a page takes a message to a thread, and again after each `flush` and each
        snapshot.

    Raises
    ------
    ValueError, OverflowError
        As of numpy.memmap, and for every negative extent.
    OSError
        The file cannot be opened, read, or made longer. With ``"w+"``: an array of the file reaches behind its new end.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     a = faultless.memmap(os.path.join(directory, "data"), "float64", "w+", shape=(2, 3))
    ...     a[1, 2] = 5
    ...     a.flush()
    ...     b = faultless.memmap(os.path.join(directory, "data"), "float64", "r")
    ...     float(b[5]), a.filename == b.filename
    (5.0, True)
    """

    # Of two arrays, the other one says what the result is.
    __array_priority__ = -100.0

    _mmap: Memory | None
    filename: str | pathlib.Path | None
    offset: int | None
    mode: str | None

    def __new__(
        cls,
        filename: Any,
        dtype: DTypeLike = numpy.uint8,
        mode: Literal["r+", "r", "w+", "c", "readwrite", "readonly", "write", "copyonwrite"] = "r+",
        offset: int = 0,
        shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
        order: Literal["C", "F"] = "C",
        *,
        lazy: bool = False,
        snapshots: bool = False,
    ) -> memmap:
        kind = WORDS.get(mode, mode)
        if kind not in MODES:
            raise ValueError(f"mode must be one of {[*MODES, *WORDS]!r} (got {mode!r})")
        if kind == "w+" and shape is None:
            raise ValueError(f"shape must be given if mode == {mode!r}")
        if snapshots and not lazy:
            raise ValueError("an array with snapshots is lazy: give lazy=True")
        descr = numpy.dtype(dtype)
        with _opened(filename, kind) as file:
            extents = _extents(file, descr, offset, shape)
            end = offset + math.prod(extents) * descr.itemsize
            _refuse_negative(kind, offset, extents, end)
            empties = kind == "w+" and file is not filename
            memory, start = _memory(file, kind, offset, end, empties=empties, lazy=lazy, snapshots=snapshots)
            name = getattr(file, "name", None)
        array = numpy.ndarray.__new__(cls, extents, descr, buffer=memory, offset=start, order=order)  # type: ignore[arg-type]
        array._mmap = memory
        array.offset = offset
        array.mode = kind
        if isinstance(filename, os.PathLike):
            array.filename = pathlib.Path(filename).resolve()
        else:
            array.filename = os.path.abspath(name) if isinstance(name, str) else None
        return array

    def __array_finalize__(self, obj: Any) -> None:
        shares = getattr(obj, "_mmap", None) is not None and numpy.may_share_memory(self, obj)
        for name in ("_mmap", "filename", "offset", "mode"):
            setattr(self, name, getattr(obj, name, None) if shares else None)

    def snapshot(self) -> Snapshot:
        """What the array holds now, while it goes on changing: `faultless.snapshot` of it.

        Returns
        -------
        Snapshot

        Examples
        --------
        >>> import tempfile
        >>> a = faultless.memmap(tempfile.TemporaryFile(), mode="w+", shape=3)
        >>> s = a.snapshot()
        >>> a[:] = 1
        >>> s.array()
        array([0, 0, 0], dtype=uint8)
        """
        return snapshot(self)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        array = super().__array_wrap__(array, context)
        # An array that was given for the result stays what it is, and a subclass of a program's own has its own.
        if self is array or type(self) is not memmap:
            return array
        return array[()] if return_scalar else array.view(numpy.ndarray)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        # A copy is in memory alone.
        is_copy = type(found) is memmap and found._mmap is None
        return found.view(numpy.ndarray) if is_copy else found

    @property
    def is_cached(self) -> bool:
        """Whether it is memory of the file's cache, and not of a mapping of the kernel's.

        Examples
        --------
        >>> import tempfile
        >>> faultless.memmap(tempfile.TemporaryFile(), mode="w+", shape=3).is_cached
        True
        """
        return isinstance(self._mmap, Mapping)

    def flush(self) -> None:
        """Writes what has changed to the file, and waits until it is durable.

        Raises
        ------
        OSError
            It could not be written. It stays in memory, and the next call tries again.

        Examples
        --------
        >>> import tempfile
        >>> a = faultless.memmap(tempfile.TemporaryFile(), mode="w+", shape=3)
        >>> a[:] = 7
        >>> a.flush()
        """
        flush = getattr(self.base, "flush", None)
        if flush is not None:
            flush()


def _opened(filename: Any, mode: str) -> ContextManager[Any]:
    if hasattr(filename, "read"):
        return contextlib.nullcontext(filename)
    flags = {"w+": os.O_RDWR | os.O_CREAT, "r+": os.O_RDWR}.get(mode, os.O_RDONLY)
    # A file is emptied later, by its cache.
    # A number is no name here: `open` would take it for a descriptor, and close that.
    return open(os.fspath(filename), "rb" if flags == os.O_RDONLY else "r+b", opener=lambda path, _: os.open(path, flags | os.O_CLOEXEC, 0o666))


def _length(file: Any) -> int:
    length = file.seek(0, io.SEEK_END)
    # Some objects that look like files do not say.
    return file.tell() if length is None else length  # type: ignore[no-any-return]


def _extents(file: Any, dtype: numpy.dtype[Any], offset: int, shape: Any) -> tuple[int, ...]:
    length = _length(file)
    if shape is None:
        elements, rest = divmod(length - offset, dtype.itemsize)
        if rest:
            raise ValueError("Size of available data is not a multiple of the data-type size.")
        return (elements,)
    if not isinstance(shape, (tuple, list)):
        with contextlib.suppress(TypeError):
            shape = [operator.index(shape)]
    extents = tuple(shape)
    if any(isinstance(n, bool) for n in extents):
        raise TypeError("an integer is required in a shape, not a bool")
    return tuple(operator.index(n) for n in extents)


def _refuse_negative(mode: str, offset: int, extents: tuple[int, ...], end: int) -> None:
    """Raises what numpy.memmap raises for a part that no file has, before the file changes: mmap looks first, then ndarray."""
    start = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    length = (max(end, 1) if mode in ("r+", "w+") else end) - start
    if length == 0 and start > 0:
        length, start = mmap.ALLOCATIONGRANULARITY, start - mmap.ALLOCATIONGRANULARITY
    is_too_big = abs(end) > sys.maxsize
    if start < 0 or length < 0 and not is_too_big:
        # It raises in any case, by its own words.
        mmap.mmap(-1, length, offset=start)
    if is_too_big:
        raise ValueError("array is too big: it is larger than the maximum possible size")
    if min(extents, default=0) < 0:
        raise ValueError("negative dimensions are not allowed")


def _memory(file: Any, mode: str, offset: int, end: int, *, empties: bool, lazy: bool, snapshots: bool) -> tuple[Memory, int]:
    """Memory with the bytes of a file from `offset` to `end`, and where they begin in it."""
    fd = file.fileno()
    writes = mode in ("r+", "w+")
    access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    if access == os.O_WRONLY or writes and access == os.O_RDONLY:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    # An empty array has a file, too.
    needed = max(end, 1) if writes else end
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        if writes and _length(file) < needed:
            # As numpy.memmap. It is an error where a device cannot grow.
            file.seek(needed - 1)
            file.write(b"\0")
            file.flush()
        return _map_by_kernel(fd, mode, offset, needed)
    cached = _cache(fd, mode, 0 if lazy else max(end - offset, 0), lazy=lazy)
    if empties:
        _empty(fd, cached, needed)
    length = os.fstat(fd).st_size
    if writes and length < needed:
        os.ftruncate(fd, needed) if cached is None else cached.truncate(needed)
    elif length < needed:
        raise ValueError("mmap length is greater than file size")
    elif not writes and length == 0:
        raise ValueError("cannot mmap an empty file")
    if cached is not None and (lazy or mode != "c"):
        if snapshots:
            cached.allow_snapshots()
        try:
            memory = cached.map(offset, max(end, offset), writable=writes, lazy=lazy, private=mode == "c")
            if memory.serves_system_calls:
                return memory, 0
            del memory
            problem: OSError | MemoryError = PermissionError(errno.EPERM, "system calls cannot be given memory of a lazy array here")
        except (MemoryError, OSError) as error:
            if not lazy and not isinstance(error, MemoryError):
                raise
            problem = error
        cached.close()
        del cached
        if mode != "c" and _is_cached(fd):
            # Others of this process would not see the same bytes.
            raise problem
    return _map_by_kernel(fd, mode, offset, end)


def _cache(fd: int, mode: str, length: int, *, lazy: bool) -> File | None:
    """The cache of a file, if the array is to use it, or others do."""
    kernels = _by_kernel.get(_id(fd), [])
    if _is_cached(fd):
        if mode != "c" and not _fits(length):
            raise MemoryError("the file is open in this process's cache, for which the array is too large: close that first")
        return File(fd)
    if mode == "c" and not lazy or any(mapping() is not None for mapping in kernels) or not _fits(length):
        return None
    try:
        return File(fd)
    except (OSError, MemoryError):
        # No addresses or descriptors for one.
        return None


def _empty(fd: int, cached: File | None, length: int) -> None:
    if cached is None:
        return os.ftruncate(fd, 0)
    try:
        cached.truncate(0)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # Other arrays of the file have zeroes, too.
        cached.punch_hole(0, len(cached))
        cached.truncate(length)


def _id(fd: int) -> tuple[int, int]:
    about = os.fstat(fd)
    return about.st_dev, about.st_ino


def _map_by_kernel(fd: int, mode: str, offset: int, end: int) -> tuple[Memory, int]:
    _sync_all()
    start = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    if start == end > 0:
        # A length of nothing would be all of the file.
        start -= mmap.ALLOCATIONGRANULARITY
    access = {"c": mmap.ACCESS_COPY, "r": mmap.ACCESS_READ}.get(mode, mmap.ACCESS_WRITE)
    mapping = mmap.mmap(fd, end - start, access=access, offset=start)
    if mode != "c":
        known = [known for known in _by_kernel.get(_id(fd), []) if known() is not None]
        _by_kernel[_id(fd)] = [*known, weakref.ref(mapping)]
    return mapping, offset - start
