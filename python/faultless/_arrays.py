"""Arrays as NumPy makes them, with the memory of large ones in blocks."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, SupportsIndex, TypedDict, Union, Unpack

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _faultless
from ._faultless import Block, _check_options

Shape = Union[SupportsIndex, Sequence[SupportsIndex]]
Order = Union[Literal["C"], Literal["F"]]
LikeOrder = Union[Order, Literal["K"], Literal["A"]]


class Options(TypedDict, total=False):
    """How the memory of a large array is brought: see `Region`."""

    delivery: Literal["best", "thread", "kernel", "signal", "direct"]
    window: tuple[int, int] | None
    huge_pages: bool
    handlers: int
    budget: int | None
    events: bool


SMALL = 4 << 20
"""Bytes from which on NumPy asks for huge pages, too. What is smaller is NumPy's own: a block has nothing to win there."""

_SCALAR = 32
"""No number has more bytes."""


def zeros(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]:
    """As `faultless.zeros`, for arrays that may be large."""
    return _new(numpy.zeros, shape, dtype, order, options, zeroed=True)


def empty(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]:
    """As `faultless.empty`, for arrays that may be large."""
    return _new(numpy.empty, shape, dtype, order, options, zeroed=False)


def ones(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]:
    """An array of ones, as `numpy.ones`.

    Parameters
    ----------
    shape, dtype, order
        As for `numpy.ones`.
    delivery, window, huge_pages, handlers, budget, events
        How the memory of a large array is brought, as for `Region`.

    Raises
    ------
    TypeError, ValueError, MemoryError, RegionError
        As `zeros`.

    Examples
    --------
    >>> faultless.ones(3)
    array([1., 1., 1.])
    """
    if type(shape) is int and shape < SMALL // _SCALAR and dtype is None and not options:
        return numpy.ones(shape, order=order)
    array = _faultless.empty(shape, dtype, order, **options)
    numpy.copyto(array, 1, casting="unsafe")
    return array


def full(
    shape: Shape, fill_value: Any, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]
) -> NDArray[Any]:
    """An array of one value, as `numpy.full`.

    Parameters
    ----------
    shape, fill_value, dtype, order
        As for `numpy.full`.
    delivery, window, huge_pages, handlers, budget, events
        How the memory of a large array is brought, as for `Region`.

    Raises
    ------
    TypeError, ValueError, MemoryError, RegionError
        As `zeros`.

    Examples
    --------
    >>> faultless.full((2, 2), 7)
    array([[7, 7],
           [7, 7]])
    """
    if type(shape) is int and shape < SMALL // _SCALAR and dtype is None and not options:
        return numpy.full(shape, fill_value, order=order)
    array = _faultless.empty(shape, numpy.asarray(fill_value).dtype if dtype is None else dtype, order, **options)
    numpy.copyto(array, fill_value, casting="unsafe")
    return array


def zeros_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]:
    """An array of zeroes with the shape, type and order of another, as `numpy.zeros_like`.

    Parameters
    ----------
    prototype, dtype, order, subok, shape
        As for `numpy.zeros_like`. Arrays like anything but a plain array (a subclass, a list) are NumPy's own.
    delivery, window, huge_pages, handlers, budget, events
        How the memory of a large array is brought, as for `Region`.

    Raises
    ------
    TypeError, ValueError, MemoryError, RegionError
        As `zeros`.

    Examples
    --------
    >>> faultless.zeros_like(faultless.ones(3))
    array([0., 0., 0.])
    """
    array = _like(prototype, dtype, order, shape, options, zeroed=True)
    return numpy.zeros_like(prototype, dtype, order, subok, shape) if array is None else array


def empty_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]:
    """An array of any content with the shape, type and order of another, as `numpy.empty_like`.

    Parameters
    ----------
    prototype, dtype, order, subok, shape
        As for `zeros_like`.
    delivery, window, huge_pages, handlers, budget, events
        How the memory of a large array is brought, as for `Region`.

    Raises
    ------
    TypeError, ValueError, MemoryError, RegionError
        As `zeros`.

    Examples
    --------
    >>> faultless.empty_like(faultless.ones((2, 3)), dtype=bool).shape
    (2, 3)
    """
    array = _like(prototype, dtype, order, shape, options, zeroed=False)
    return numpy.empty_like(prototype, dtype, order, subok, shape) if array is None else array


def ones_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]:
    """An array of ones with the shape, type and order of another, as `numpy.ones_like`.

    Parameters
    ----------
    prototype, dtype, order, subok, shape
        As for `zeros_like`.
    delivery, window, huge_pages, handlers, budget, events
        How the memory of a large array is brought, as for `Region`.

    Raises
    ------
    TypeError, ValueError, MemoryError, RegionError
        As `zeros`.

    Examples
    --------
    >>> faultless.ones_like(faultless.zeros(3, dtype=int))
    array([1, 1, 1])
    """
    array = empty_like(prototype, dtype, order, subok, shape, **options)
    numpy.copyto(array, 1, casting="unsafe")
    return array


def full_like(
    prototype: ArrayLike,
    fill_value: Any,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]:
    """An array of one value with the shape, type and order of another, as `numpy.full_like`.

    Parameters
    ----------
    prototype, fill_value, dtype, order, subok, shape
        As for `numpy.full_like`, and `zeros_like`.
    delivery, window, huge_pages, handlers, budget, events
        How the memory of a large array is brought, as for `Region`.

    Raises
    ------
    TypeError, ValueError, MemoryError, RegionError
        As `zeros`.

    Examples
    --------
    >>> faultless.full_like(faultless.zeros(3), 7)
    array([7., 7., 7.])
    """
    array = empty_like(prototype, dtype, order, subok, shape, **options)
    numpy.copyto(array, fill_value, casting="unsafe")
    return array


def _extents(shape: Shape) -> tuple[int, ...]:
    try:
        return (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(operator.index(n) for n in shape)  # type: ignore[union-attr]


def _needs_block(extents: tuple[int, ...], dtype: numpy.dtype[Any]) -> bool:
    """Whether NumPy would make such an array, in memory that is worth a block."""
    return (
        min(extents, default=0) > 0
        and SMALL <= math.prod(extents) * dtype.itemsize <= sys.maxsize
        and not dtype.hasobject
    )


def _array(extents: tuple[int, ...], dtype: numpy.dtype[Any], order: Order, zeroed: bool, options: Options) -> NDArray[Any]:
    # NumPy's types know such a buffer from Python 3.12 on.
    block: Any = Block(math.prod(extents) * dtype.itemsize, zeroed=zeroed, **options)
    return numpy.ndarray(extents, dtype, buffer=block, order=order)


def _new(
    plain: Callable[..., NDArray[Any]], shape: Shape, dtype: DTypeLike | None, order: Order, options: Options, zeroed: bool
) -> NDArray[Any]:
    if options:
        _check_options(**options)
    # What NumPy makes of type and order: a string has a length, a type of several elements gives more dimensions.
    sample = numpy.empty((2, 2), dtype, order)
    try:
        extents = _extents(shape) + sample.shape[2:]
    except TypeError:
        return plain(shape, dtype, order)
    if not _needs_block(extents, sample.dtype):
        return plain(shape, dtype, order)
    return _array(extents, sample.dtype, "C" if sample.flags.c_contiguous else "F", zeroed, options)


def _like(
    prototype: ArrayLike, dtype: DTypeLike | None, order: LikeOrder, shape: Shape | None, options: Options, zeroed: bool
) -> NDArray[Any] | None:
    """None where the array is NumPy's own."""
    if options:
        _check_options(**options)
    if type(prototype) is not numpy.ndarray or order not in ("K", "A", "C", "F"):
        return None
    if dtype is None and shape is None and prototype.nbytes < SMALL:
        return None
    sample = numpy.empty_like(prototype, dtype, shape=(0,))
    try:
        extents = prototype.shape if shape is None else _extents(shape)
    except TypeError:
        return None
    if sample.ndim != 1 or not _needs_block(extents, sample.dtype):
        return None
    is_fortran = prototype.flags.f_contiguous and not prototype.flags.c_contiguous
    if order == "K" and len(extents) == prototype.ndim and not (is_fortran or prototype.flags.c_contiguous):
        # As near to the prototype as an array without gaps can be: the axis with the largest stride comes first.
        axes = sorted(range(prototype.ndim), key=lambda axis: -abs(prototype.strides[axis]))
        array = _array(tuple(extents[axis] for axis in axes), sample.dtype, "C", zeroed, options)
        return array.transpose(sorted(range(len(axes)), key=axes.__getitem__))
    follows = order == "A" or order == "K" and len(extents) == prototype.ndim
    return _array(extents, sample.dtype, "F" if order == "F" or follows and is_fortran else "C", zeroed, options)
