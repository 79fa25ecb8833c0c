"""Makes a file of weights of so many bytes, or loads all of its tensors."""

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
    tensors = safetensors.numpy.load_file(path)
    print(sum(float(tensor[::512].sum()) for tensor in tensors.values()))
