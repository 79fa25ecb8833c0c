"""Makes a file of weights of so many bytes, or loads all of its tensors, with advice first where `advised` follows."""

import mmap
import os
import sys

import numpy
import safetensors.numpy

path, size = sys.argv[1], int(sys.argv[2])
layers = 32
if not os.path.exists(path):
    shape = (size // layers // 4 // 1024, 1024)
    tensors = {f"layer.{i}": numpy.full(shape, i, dtype="float32") for i in range(layers)}
    safetensors.numpy.save_file(tensors, path)
else:
    if "advised" in sys.argv[3:]:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            # The kernel cuts longer requests off.
            for start in range(0, len(mapped), 2 << 20):
                mapped.madvise(mmap.MADV_WILLNEED, start, min(2 << 20, len(mapped) - start))
    tensors = safetensors.numpy.load_file(path)
    print(sum(float(tensor[::512].sum()) for tensor in tensors.values()))
