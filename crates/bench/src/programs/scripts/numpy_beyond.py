"""Makes an array of so many bytes in a file, or computes with one that is larger than the memory allowed.

It prints how long that took, as JSON, and a checksum.
"""

import json
import mmap
import os
import sys
import time

import numpy

path, size, work, way = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
COLUMNS = 1024
ROW = 4 * COLUMNS
ROWS = size // ROW
CHUNK = 4096
BATCH = 1024


def make():
    columns = numpy.arange(COLUMNS, dtype="float32") % 5
    with open(path, "wb") as file:
        for first in range(0, ROWS, CHUNK):
            rows = numpy.arange(first, min(first + CHUNK, ROWS), dtype="float32") % 3
            file.write((rows[:, None] + columns).astype("float32").tobytes())
        os.fsync(file.fileno())


def array():
    """The array, and what brings rows that are needed next: first and end of each part."""
    shape = (ROWS, COLUMNS)
    if way in ("lazy", "prefetched"):
        import faultless

        file = faultless.open(path, huge_pages=work != "gather")
        rows = faultless.memmap(path, dtype="float32", mode="r", shape=shape, lazy=True)
        if not rows.is_cached:
            sys.exit("the array is not in the cache of faultless")
        if way == "lazy":
            return rows, lambda parts: None
        return rows, lambda parts: file.prefetch([(first * ROW, end * ROW) for first, end in parts])
    rows = numpy.memmap(path, dtype="float32", mode="r", shape=shape)
    if way == "plain":
        return rows, lambda parts: None
    mapping = rows._mmap
    mapping.madvise(mmap.MADV_RANDOM if work == "gather" else mmap.MADV_SEQUENTIAL)

    def announce(parts):
        for first, end in parts:
            mapping.madvise(mmap.MADV_WILLNEED, first * ROW, (end - first) * ROW)

    return rows, announce


def by_chunks(rows, bring, f):
    total = 0.0
    for first in range(0, ROWS, CHUNK):
        end = min(first + CHUNK, ROWS)
        bring([(first, end)])
        total += float(f(rows[first:end]))
    return total


def gather(rows, bring):
    total = 0.0
    order = numpy.random.default_rng(1).permutation(ROWS)[: max(ROWS // 16, 1)]
    for first in range(0, len(order), BATCH):
        batch = order[first : first + BATCH]
        bring([(row, row + 1) for row in batch.tolist()])
        total += float(rows[batch].sum(dtype="float64"))
    return total


def main():
    if work == "make":
        return make()
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    weights = (numpy.arange(COLUMNS * 64, dtype="float32") % 3).reshape(COLUMNS, 64)
    rows, bring = array()
    start = time.perf_counter()
    if work == "gather":
        total = gather(rows, bring)
    elif work == "sum":
        total = by_chunks(rows, bring, lambda part: part.sum(dtype="float64"))
    else:
        total = by_chunks(rows, bring, lambda part: (part @ weights).sum(dtype="float64"))
    print(json.dumps([{"test": work, "seconds": time.perf_counter() - start}]))
    print(total)


main()
