"""Snapshots of arrays, and files that NumPy reads, too."""

from __future__ import annotations

import io
import math
import os
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy
from numpy.typing import NDArray

from ._faultless import Background, Block, _Memories, _save_bytes

if TYPE_CHECKING:
    from ._memmap import memmap

LOAD_MODES = ("r", "r+", "c")

HEADER = 4096
"""Bytes before the numbers in a file, unless NumPy's header needs more: so each of its pages has numbers alone."""


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

    The memory is protected against writing in one call. A write copies a few pages of 4 KiB before it goes on. An array that is
    NumPy's own (below 4 MiB, for instance) is copied as a whole.

    Parameters
    ----------
    array : numpy.ndarray
        An array whose elements lie one after the other (C or Fortran order), and are no Python objects.

    Returns
    -------
    Snapshot

    Raises
    ------
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
    if array.dtype.hasobject:
        raise ValueError("a snapshot is of numbers and the like, not of Python objects")
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    if not (fortran or array.flags.c_contiguous):
        raise ValueError("a snapshot is of an array whose elements lie one after the other: take one of `array.base`, or of a copy")
    base: Any = array
    while isinstance(base, numpy.ndarray):
        base = base.base
    if isinstance(base, Block) and array.nbytes > 0:
        offset = array.__array_interface__["data"][0] - base.address
        return _of(base._snapshot(), offset, array, fortran)
    return _of(_bytes(array, fortran), 0, array, fortran)


def _header(shape: tuple[int, ...], dtype: numpy.dtype[Any], fortran: bool) -> bytes:
    """NumPy's header, made longer by spaces."""
    text = io.BytesIO()
    sample: NDArray[Any] = numpy.ndarray(shape, dtype, numpy.empty(1, dtype), strides=(0,) * len(shape))
    described = numpy.lib.format.header_data_from_array_1_0(sample)
    described["fortran_order"] = fortran
    numpy.lib.format.write_array_header_2_0(text, described) if len(repr(described)) > 60_000 else (
        numpy.lib.format.write_array_header_1_0(text, described)
    )
    made = text.getvalue()
    if len(made) > HEADER or made[6] != 1:
        return made
    return made[:8] + (HEADER - 10).to_bytes(2, "little") + made[10:].rstrip(b" \n").ljust(HEADER - 11) + b"\n"


@overload
def save(path: str | os.PathLike[str], what: Snapshot | NDArray[Any], *, rate: int | None = ..., wait: Literal[True] = ...) -> None: ...


@overload
def save(
    path: str | os.PathLike[str], what: Snapshot | NDArray[Any], *, rate: int | None = ..., wait: Literal[False]
) -> Background | None: ...


def save(
    path: str | os.PathLike[str], what: Snapshot | NDArray[Any], *, rate: int | None = None, wait: bool = True
) -> Background | None:
    """Writes a snapshot to a file in NumPy's format (.npy), while the array goes on changing.

    The file gets its name when all of it is there and durable. Until then a file of that name stays what it is.

    Parameters
    ----------
    path : str or os.PathLike
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
        The file cannot be written. Nothing is left of it then.
    ValueError, RegionError
        As of `snapshot`, or the rate is less than 1.

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
    if rate is not None and rate < 1:
        raise ValueError(f"rate is at least 1, not {rate}")
    taken = what if isinstance(what, Snapshot) else snapshot(what)
    header = _header(taken._shape, taken._dtype, taken._fortran)
    if isinstance(taken._memory, bytes):
        _save_bytes(os.fspath(path), header, taken._memory)
        return None
    saving = taken._memory.save(os.fspath(path), header, taken._offset, taken.nbytes, rate)
    if not wait:
        return saving
    try:
        saving.wait()
    except BaseException:
        # A signal's, perhaps. Nobody else can end it.
        saving.cancel()
        raise
    return None


def load(path: str | os.PathLike[str], mode: Literal["r", "r+", "c"] = "r", *, lazy: bool = True) -> memmap:
    """Opens an array of a file that `save` or `numpy.save` wrote.

    Parameters
    ----------
    path : str or os.PathLike
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
        version = numpy.lib.format.read_magic(file)
        read = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}
        if version not in read:
            raise ValueError(f"a file of NumPy's version {version}, of which no array is opened: use numpy.load")
        shape, fortran, dtype = read[version](file)
        offset = file.tell()
    if dtype.hasobject:
        raise ValueError("an array of Python objects: use numpy.load")
    return memmap(path, dtype, mode, offset, shape, "F" if fortran else "C", lazy=lazy and mode != "c")
