"""Arrays whose sizes a trace of system calls tells apart from everything else: in mappings of the C library's, as
programs/known.c says. Without an argument, all but the arrays."""

import sys

import numpy as np

SIZES = [parts * 65536 + 4096 - 24 for parts in (40, 64, 7, 300, 33, 40, 64, 7, 1024, 5)]

if len(sys.argv) > 1:
    kept = []
    for turn, size in enumerate(SIZES):
        array = (np.zeros if turn % 2 else np.empty)(size, np.uint8)
        array[::4096] = turn + 1
        kept.append(array)
        if turn >= 2:
            kept[turn - 2] = None
    assert int(kept[-1][0]) == len(SIZES)
