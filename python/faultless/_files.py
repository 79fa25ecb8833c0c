"""Files, as Python opens them: what `File` leaves to Python."""

from __future__ import annotations

import atexit
import os
from typing import Literal, Union

from ._faultless import CacheGroup, File, _after_fork_in_child, _after_fork_in_parent, _before_fork, _sync_all

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

FLAGS = {"r": os.O_RDONLY, "r+": os.O_RDWR, "w+": os.O_RDWR | os.O_CREAT, "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL}

# At the end of a program, also by an exception, its globals are not dropped.
atexit.register(_sync_all)
# A child reads the arrays of its parent. Its writes would be lost, so they are a SIGSEGV.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def open(path: Path, mode: Literal["r", "r+", "w+", "x+"] = "r", *, huge_pages: bool = True, group: CacheGroup | None = None) -> File:
    """Opens a file in the cache of this process.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        Its name.
    mode : {"r", "r+", "w+", "x+"}
        To read; to read and write; the same for a file that is made, or emptied; the same for a new file.
    huge_pages : bool
        Whether 2 MiB come at a time, and not single pages of 4 KiB.
    group : CacheGroup, optional
        Files with which it shares a budget.

    Returns
    -------
    File

    Raises
    ------
    OSError
        It cannot be opened, or is no regular file.
    ValueError
        There is no such mode.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with faultless.open(os.path.join(directory, "data"), "w+") as file:
    ...         file.write(0, b"bytes")
    ...     with faultless.open(os.path.join(directory, "data")) as file:
    ...         file.read(0, 100)
    5
    b'bytes'
    """
    if mode not in FLAGS:
        raise ValueError(f"mode is one of {', '.join(FLAGS)}, not {mode}")
    fd = os.open(os.fspath(path), FLAGS[mode] | os.O_CLOEXEC, 0o666)
    try:
        file = File(fd, huge_pages=huge_pages, group=group)
    finally:
        os.close(fd)
    if mode == "w+":
        # Not by O_TRUNC: other handles of the file have to see it.
        file.truncate(0)
    return file
