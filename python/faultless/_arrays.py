"""Arrays as NumPy makes them, with the memory of large ones in blocks: what the functions of `_faultless` leave to Python."""

from __future__ import annotations

import math
import operator
import resource
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypedDict, Union, Unpack

from ._faultless import Block, _check_options

if TYPE_CHECKING:
    # Regions need no NumPy, so the first array sets it here (`arrays/mod.rs`).
    import numpy
    from numpy.typing import ArrayLike, DTypeLike, NDArray

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


FOREIGN = ("device", "like")
"""What NumPy's functions take beside that. An array with one of them is NumPy's own."""

SMALL = 4 << 20
"""Bytes from which on NumPy asks for huge pages, too. What is smaller is NumPy's own: a block has nothing to win there."""


def zeros(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]:
    return _new("zeros", numpy.zeros, shape, dtype, order, options)


def empty(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]:
    return _new("empty", numpy.empty, shape, dtype, order, options)


def ones(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]:
    return _filled(_new("ones", numpy.empty, shape, dtype, order, options), 1)


def full(
    shape: Shape, fill_value: Any, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]
) -> NDArray[Any]:
    dtype = numpy.asarray(fill_value).dtype if dtype is None else dtype
    return _filled(_new("full", numpy.empty, shape, dtype, order, options), fill_value)


def zeros_like(prototype: ArrayLike, *args: Any, **named: Any) -> NDArray[Any]:
    return _like("zeros_like", numpy.zeros_like, prototype, *args, **named)


def empty_like(prototype: ArrayLike, *args: Any, **named: Any) -> NDArray[Any]:
    return _like("empty_like", numpy.empty_like, prototype, *args, **named)


def ones_like(prototype: ArrayLike, *args: Any, **named: Any) -> NDArray[Any]:
    return _filled(_like("ones_like", numpy.empty_like, prototype, *args, **named), 1)


def full_like(prototype: ArrayLike, fill_value: Any, *args: Any, **named: Any) -> NDArray[Any]:
    return _filled(_like("full_like", numpy.empty_like, prototype, *args, **named), fill_value)


def _filled(array: NDArray[Any], value: Any) -> NDArray[Any]:
    numpy.copyto(array, value, casting="unsafe")
    return array


def _extents(shape: Shape) -> tuple[int, ...]:
    """TypeError: whether that is a shape, and which one, is NumPy's to say."""
    if isinstance(shape, (tuple, list)) and not any(isinstance(n, (bool, numpy.bool_)) for n in shape):
        return tuple(operator.index(n) for n in shape)
    if isinstance(shape, bool):
        raise TypeError("a truth value")
    return (operator.index(shape),)  # type: ignore[arg-type]


def _needs_block(extents: tuple[int, ...], dtype: numpy.dtype[Any]) -> bool:
    """Whether NumPy would make such an array, in memory that is worth a block."""
    return (
        min(extents, default=0) > 0
        and SMALL <= math.prod(extents) * dtype.itemsize <= sys.maxsize
        and not dtype.hasobject
    )


def _array(
    extents: tuple[int, ...], dtype: numpy.dtype[Any], order: Order, zeroed: bool, options: Options
) -> NDArray[Any] | None:
    """None where there is no memory for a block and its tables: NumPy's own may fit, and else it says what is missing."""
    may_be_plain = not options.get("events") and options.get("delivery", "best") == "best"
    if may_be_plain and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        # A region keeps addresses aside: fewer arrays would fit.
        return None
    try:
        # NumPy's types know such a buffer from Python 3.12 on.
        block: Any = Block(math.prod(extents) * dtype.itemsize, zeroed=zeroed, **options)
    except MemoryError:
        if not may_be_plain:
            raise
        return None
    return numpy.ndarray(extents, dtype, buffer=block, order=order)


def _take_foreign(options: Options) -> dict[str, Any]:
    """Takes what is NumPy's alone out of the arguments by name."""
    named: dict[str, Any] = options  # type: ignore[assignment]
    return {name: named.pop(name) for name in FOREIGN if name in named}


def _new(
    name: str, plain: Callable[..., NDArray[Any]], shape: Shape, dtype: DTypeLike | None, order: Order, options: Options
) -> NDArray[Any]:
    """An array of the function `name`; `plain` makes it where it is NumPy's own, and says whether it is zero."""
    foreign = _take_foreign(options)
    if options:
        _check_options(f"{name}()", **options)
    if foreign:
        return plain(shape, dtype, order, **foreign)
    # What NumPy makes of type and order: a string has a length, a type of several elements gives more dimensions.
    sample = numpy.empty((2, 2), dtype, order)
    try:
        extents = _extents(shape) + sample.shape[2:]
    except TypeError:
        return plain(shape, dtype, order)
    if not _needs_block(extents, sample.dtype):
        return plain(shape, dtype, order)
    array = _array(extents, sample.dtype, "C" if sample.flags.c_contiguous else "F", plain is numpy.zeros, options)
    return plain(shape, dtype, order) if array is None else array


def _like(
    name: str,
    plain: Callable[..., NDArray[Any]],
    /,
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]:
    foreign = _take_foreign(options)
    if options:
        _check_options(f"{name}()", **options)
    if foreign:
        return plain(prototype, dtype, order, subok, shape, **foreign)
    array = _block_like(prototype, dtype, order, subok, shape, options, plain is numpy.zeros_like)
    return plain(prototype, dtype, order, subok, shape) if array is None else array


def _block_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None,
    order: LikeOrder,
    subok: bool,
    shape: Shape | None,
    options: Options,
    zeroed: bool,
) -> NDArray[Any] | None:
    """None where the array is NumPy's own."""
    if type(prototype) is not numpy.ndarray or order not in ("K", "A", "C", "F"):
        return None
    if dtype is None and shape is None and prototype.nbytes < SMALL:
        return None
    # It refuses what NumPy refuses.
    sample = numpy.empty_like(prototype, dtype, "K", subok, (0,))
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
        return None if array is None else array.transpose(sorted(range(len(axes)), key=axes.__getitem__))
    follows = order == "A" or order == "K" and len(extents) == prototype.ndim
    return _array(extents, sample.dtype, "F" if order == "F" or follows and is_fortran else "C", zeroed, options)
