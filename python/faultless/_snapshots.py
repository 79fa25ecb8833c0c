"""Snapshots of arrays, and files that NumPy reads, too."""

from __future__ import annotations

import io
import math
import operator
import os
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, SupportsIndex, overload

import numpy
from numpy.typing import NDArray

from ._faultless import Background, Block, Mapping, _Memories, _save_bytes
from ._files import Path

if TYPE_CHECKING:
    from ._memmap import memmap

LOAD_MODES = ("r", "r+", "c")

HEADER = 4096
"""Bytes before the numbers in a file, unless its header needs more: so each of its pages has numbers alone."""

ALIGNMENT = 64
"""Of the numbers in a file with a longer header."""

VERSIONS = {(1, 0): (2, "latin1"), (2, 0): (4, "latin1"), (3, 0): (4, "utf-8")}
"""Of NumPy's format: in how many bytes the length of the header is written, and how its text is encoded."""

FASTEST = (1 << 64) - 1
"""Bytes a second."""

LONGEST = 10_000
"""Characters of a header that are read, as of NumPy."""


class Snapshot:
    """What an array held at one moment, while the array goes on changing: what `snapshot` gives.

    It keeps the memory of the array alive. When it goes, its copies go with it.

    Examples
    --------
    >>> a = faultless.ones(1000)
    >>> s = faultless.snapshot(a)
    >>> a[:] = 2
    >>> float(s.array().sum()), s.shape, s.nbytes
    (1000.0, (1000,), 8000)
    """

    _memory: _Memories | bytes
    _offset: int
    _shape: tuple[int, ...]
    _dtype: numpy.dtype[Any]
    _fortran: bool

    def __repr__(self) -> str:
        return f"<faultless.Snapshot of {self._shape}, {self._dtype}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array.

        Examples
        --------
        >>> faultless.snapshot(faultless.ones((2, 3))).shape
        (2, 3)
        """
        return self._shape

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """The type of its elements.

        Examples
        --------
        >>> faultless.snapshot(faultless.ones(3)).dtype
        dtype('float64')
        """
        return self._dtype

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take.

        Examples
        --------
        >>> faultless.snapshot(faultless.ones(3)).nbytes
        24
        """
        return math.prod(self._shape) * self._dtype.itemsize

    @property
    def held(self) -> int:
        """How many bytes of copies it has: of what was written to since.

        Examples
        --------
        >>> faultless.snapshot(faultless.ones(3)).held
        24
        """
        return len(self._memory) if isinstance(self._memory, bytes) else self._memory.held

    def array(self) -> NDArray[Any]:
        """A new array with what it holds.

        Examples
        --------
        >>> faultless.snapshot(faultless.ones(3)).array()
        array([1., 1., 1.])
        """
        read = bytearray(self._memory) if isinstance(self._memory, bytes) else self._memory.read(self._offset, self.nbytes)
        array: NDArray[Any] = numpy.ndarray(self._shape, self._dtype, read, order="F" if self._fortran else "C")
        return array


def _bytes(array: NDArray[Any], fortran: bool) -> bytes:
    """The bytes of an array as they lie there. A copy of NumPy's has the fields of a structure alone: any bytes lie between them."""
    if array.nbytes == 0:
        return b""
    return numpy.asarray(array).reshape(-1, order="F" if fortran else "C").view(numpy.uint8).tobytes()


def _of(memory: _Memories | bytes, offset: int, array: NDArray[Any], fortran: bool) -> Snapshot:
    taken = Snapshot()
    taken._memory, taken._offset, taken._fortran = memory, offset, fortran
    taken._shape, taken._dtype = array.shape, array.dtype
    return taken


def snapshot(array: NDArray[Any]) -> Snapshot:
    """Takes a snapshot of an array: what it holds now, while the array goes on changing.

    The memory is protected against writing in few calls. A write copies a few pages of 4 KiB before it goes on. An array that is
    NumPy's own (below 4 MiB, for instance) is copied as a whole. So is a `memmap` that the kernel maps, or that is to be written to
    without ``snapshots=True``.

    Parameters
    ----------
    array : numpy.ndarray
        An array whose elements lie one after the other (C or Fortran order), and are no Python objects.

    Returns
    -------
    Snapshot

    Raises
    ------
    TypeError
        It is no array of NumPy's, or it is a masked one: a snapshot has no mask.
    ValueError
        The elements do not lie one after the other, or are Python objects.
    RegionError
        Not all writes to the memory can be noticed: its `delivery` is not ``"thread"``, or system calls on it are not served; or
        a device may write to pinned memory of the process. The message says what to do.

    Examples
    --------
    >>> a = faultless.zeros((100, 100))
    >>> s = faultless.snapshot(a)
    >>> a[...] = 1
    >>> float(s.array().sum())
    0.0
    """
    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"a snapshot is of an array of NumPy's, not of a {type(array).__name__}")
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError("a masked array has a mask beside its elements: take one of its `data`, and one of its `mask`")
    if array.dtype.hasobject:
        raise ValueError("a snapshot is of numbers and the like, not of Python objects")
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    if not (fortran or array.flags.c_contiguous):
        raise ValueError("a snapshot is of an array whose elements lie one after the other: take one of `array.base`, or of a copy")
    base: Any = array
    while isinstance(base, numpy.ndarray):
        base = base.base
    if isinstance(base, (Block, Mapping)) and array.nbytes > 0:
        begins = base.address if isinstance(base, Block) else _address(base)
        offset = array.__array_interface__["data"][0] - begins
        try:
            return _of(base._snapshot(), offset, array, fortran)
        except OSError:
            # An array of a file is copied instead, as one that the kernel maps.
            if isinstance(base, Block):
                raise
    return _of(_bytes(array, fortran), 0, array, fortran)


def _address(buffer: Any) -> int:
    """Where the bytes of a buffer begin."""
    address: int = numpy.frombuffer(buffer, numpy.uint8).__array_interface__["data"][0]
    return address


def _header(shape: tuple[int, ...], dtype: numpy.dtype[Any], fortran: bool) -> bytes:
    """A header as NumPy writes it, made longer by spaces."""
    sample: NDArray[Any] = numpy.ndarray(shape, dtype, numpy.empty(1, dtype), strides=(0,) * len(shape))
    described = numpy.lib.format.header_data_from_array_1_0(sample)
    described["fortran_order"] = fortran
    text = "{" + "".join(f"{key!r}: {described[key]!r}, " for key in sorted(described)) + "}"
    for version, (width, encoding) in VERSIONS.items():
        begins = 8 + width
        try:
            made = text.encode(encoding)
            length = -(begins + len(made) + 1) % ALIGNMENT + len(made) + 1
            length = max(length, HEADER - begins)
            return numpy.lib.format.magic(*version) + length.to_bytes(width, "little") + made.ljust(length - 1) + b"\n"
        except (UnicodeEncodeError, OverflowError):
            # A later version has letters of every language, or headers beyond 64 KiB.
            continue
    raise ValueError("the names of the array's fields are too long for a file")


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, numpy.dtype[Any]]:
    """The shape of an array, whether it is in Fortran's order, and its type. The file is behind its header then."""
    version = numpy.lib.format.read_magic(file)
    if version not in VERSIONS:
        raise ValueError(f"a file of NumPy's version {version}, of which no array is opened: use numpy.load")
    if version == (1, 0):
        return numpy.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return numpy.lib.format.read_array_header_2_0(file)
    width, encoding = VERSIONS[version]
    length = int.from_bytes(file.read(width), "little")
    read = file.read(length)
    if len(read) < length:
        raise ValueError("the file ends in its header")
    text = read.decode(encoding)
    # The same header for a reader of version 2, with escapes in its strings.
    escaped = text.encode("latin1", "backslashreplace")
    as_before = io.BytesIO(len(escaped).to_bytes(4, "little") + escaped)
    return numpy.lib.format.read_array_header_2_0(as_before, max_header_size=LONGEST + len(escaped) - len(text))


@overload
def save(path: Path, what: Snapshot | NDArray[Any], *, rate: SupportsIndex | None = ..., wait: Literal[True] = ...) -> None: ...


@overload
def save(
    path: Path, what: Snapshot | NDArray[Any], *, rate: SupportsIndex | None = ..., wait: Literal[False]
) -> Background | None: ...


def save(
    path: Path, what: Snapshot | NDArray[Any], *, rate: SupportsIndex | None = None, wait: bool = True
) -> Background | None:
    """Writes a snapshot to a file in NumPy's format (.npy), while the array goes on changing.

    The file gets its name when all of it is there and durable. Until then a file of that name stays what it is.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file's name. Nothing is added to it.
    what : Snapshot or numpy.ndarray
        What to write. Of an array, a snapshot is taken.
    rate : int, optional
        How many bytes a second are written, at most: 1 or more.
    wait : bool
        Whether to return when it is written. An exception of a signal handler, such as `KeyboardInterrupt`, ends the work
        then. Otherwise the work goes on in the background.

    Returns
    -------
    Background or None
        With ``wait=False`` the work: its progress, and its end to wait for, which has the errors. None if it is done.

    Raises
    ------
    OSError
        The file cannot be written: FileNotFoundError, PermissionError and so on, as of `open`. Nothing is left of it then.
    ValueError, RegionError
        As of `snapshot`, or the rate is less than 1.
    TypeError
        As of `snapshot`, or the rate is no whole number, or the path no name.

    Examples
    --------
    >>> import os, tempfile
    >>> a = faultless.ones((100, 100))
    >>> s = faultless.snapshot(a)
    >>> a += 1
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = os.path.join(directory, "state.npy")
    ...     faultless.save(path, s)
    ...     float(faultless.load(path).sum())
    10000.0
    """
    # Before anything is done.
    name = os.fsdecode(path)
    if rate is not None:
        rate = min(operator.index(rate), FASTEST)
        if rate < 1:
            raise ValueError(f"rate is at least 1, not {rate}")
    taken = what if isinstance(what, Snapshot) else snapshot(what)
    header = _header(taken._shape, taken._dtype, taken._fortran)
    if isinstance(taken._memory, bytes):
        _save_bytes(name, header, taken._memory)
        return None
    saving = taken._memory.save(name, header, taken._offset, taken.nbytes, rate)
    if not wait:
        return saving
    try:
        saving.wait()
    except BaseException:
        # A signal's, perhaps. Nobody else can end it.
        saving.cancel()
        raise
    return None


def load(path: Path, mode: Literal["r", "r+", "c"] = "r", *, lazy: bool = True) -> memmap:
    """Opens an array of a file that `save` or `numpy.save` wrote.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file's name.
    mode : {"r", "r+", "c"}
        As of `memmap`: to read; to read and write; to read, and to change in memory alone.
    lazy : bool
        Whether pages come when they are touched. Otherwise all of it is in memory when this returns.

    Returns
    -------
    memmap

    Raises
    ------
    ValueError
        It is no such file, or has Python objects; or there is no such mode.
    OSError
        It cannot be opened or read.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = os.path.join(directory, "a.npy")
    ...     faultless.save(path, faultless.ones(3))
    ...     faultless.load(path).tolist()
    [1.0, 1.0, 1.0]
    """
    from ._memmap import memmap

    if mode not in LOAD_MODES:
        raise ValueError(f"mode is one of {', '.join(LOAD_MODES)}, not {mode}")
    # A number is no name, but a descriptor that `open` would close.
    with open(os.fspath(path), "rb") as file:
        shape, fortran, dtype = _read_header(file)
        offset = file.tell()
    if any(isinstance(n, bool) for n in shape):
        raise ValueError(f"shape is not valid: {shape!r}")
    if dtype.hasobject:
        raise ValueError("an array of Python objects: use numpy.load")
    return memmap(path, dtype, mode, offset, shape, "F" if fortran else "C", lazy=lazy and mode != "c")
