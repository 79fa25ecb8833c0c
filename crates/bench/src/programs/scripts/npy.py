"""Makes a .npy file of so many bytes, or adds up what one holds, by mmap."""

import os
import sys

import numpy

path, size = sys.argv[1], int(sys.argv[2])
if not os.path.exists(path):
    with open(path, "wb") as file:
        numpy.save(file, numpy.arange(size // 8, dtype="int64"))
        os.fsync(file.fileno())
else:
    print(numpy.load(path, mmap_mode="r").sum())
