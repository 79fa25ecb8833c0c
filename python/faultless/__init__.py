"""NumPy arrays and buffers whose page faults are resolved in user space.

    >>> import faultless
    >>> a = faultless.zeros((1000, 1000))
    >>> a[3, 4] = 1.0

Each array owns its region: its memory goes with the last view of it. A large array that is filled from the front to the back is
brought in windows that grow up to 64 MiB, made of huge pages, instead of a page at a time; after `faultless.reserve(bytes)` they are ready
before.
"""

from __future__ import annotations

import math
import operator
import sys

from ._faultless import (
    Background,
    Region,
    RegionError,
    counter,
    release_reserved,
    reserve,
    reserved,
    set_speculative,
)

__all__ = [
    "Background",
    "Region",
    "RegionError",
    "counter",
    "empty",
    "full",
    "release_reserved",
    "reserve",
    "reserved",
    "set_speculative",
    "zeros",
]


def empty(shape, dtype=float, order="C", **options):
    """An array of any content, as numpy.empty: zeroes, or old bytes of this process. The options are those of Region."""
    return zeros(shape, dtype, order, **{"zeroed": False, **options})


def zeros(shape, dtype=float, order="C", **options):
    """An array of zeroes, as numpy.zeros. The options are those of Region."""
    import numpy

    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise TypeError("arrays of Python objects cannot be in a region")
    try:
        shape = (operator.index(shape),)
    except TypeError:
        shape = tuple(operator.index(n) for n in shape)
    if any(n < 0 for n in shape):
        raise ValueError("negative dimensions are not allowed")
    # A region has at least one byte, and says itself that it cannot have too many.
    length = min(max(math.prod(shape) * dtype.itemsize, 1), sys.maxsize)
    return numpy.ndarray(shape, dtype, buffer=Region(length, **options), order=order)


def full(shape, fill_value, dtype=None, order="C", **options):
    """An array of one value, as numpy.full. The options are those of Region."""
    import numpy

    array = zeros(shape, numpy.asarray(fill_value).dtype if dtype is None else dtype, order, **options)
    array[...] = fill_value
    return array
