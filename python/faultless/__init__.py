"""NumPy arrays and buffers whose page faults are resolved in user space.

    >>> import faultless
    >>> a = faultless.zeros((1000, 1000))
    >>> a[3, 4] = 1.0

A large array that is filled from the front to the back is brought in windows that grow up to 64 MiB, made of huge pages, instead of a
page at a time; after `faultless.reserve(bytes)` they are ready before. The memory of an array goes with the last view of it. Large
arrays share handler threads and descriptors. Arrays below 4 MiB are NumPy's own, as are those of Python objects.

Whoever may not have the faults of system calls delivered (most users, unless they are root) has the kernel's own faults with huge
pages: everything works, and windows are the kernel's. The options of `Region` say what else there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._faultless import (
    Background,
    Block,
    CacheGroup,
    File,
    Mapping,
    Region,
    RegionError,
    __version__,
    counter,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    release_reserved,
    reserve,
    reserved,
    set_speculative,
    zeros,
    zeros_like,
)

# Not at the first array: a fork beside an import in another thread leaves Python's lock of that module held in the child.
from . import _arrays as _arrays
from . import _sigbus as _sigbus
from ._files import open

if TYPE_CHECKING:
    from ._memmap import memmap
    from ._snapshots import Snapshot, load, save, snapshot

__all__ = [
    "Background",
    "Block",
    "CacheGroup",
    "File",
    "Mapping",
    "Region",
    "RegionError",
    "Snapshot",
    "__version__",
    "counter",
    "empty",
    "empty_like",
    "full",
    "full_like",
    "load",
    "memmap",
    "ones",
    "ones_like",
    "open",
    "release_reserved",
    "reserve",
    "reserved",
    "save",
    "set_speculative",
    "snapshot",
    "zeros",
    "zeros_like",
]


def __getattr__(name: str) -> Any:
    """`memmap` and snapshots need NumPy, which takes its time: files and regions do without."""
    if name == "memmap":
        from . import _memmap as module
    elif name in ("Snapshot", "load", "save", "snapshot"):
        from . import _snapshots as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
