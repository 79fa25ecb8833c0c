"""Files of 40 MiB that safetensors, PyArrow and NumPy map, none of them in the kernel's cache."""

import hashlib
import os

import numpy
import pyarrow
import safetensors.numpy

numbers = numpy.random.default_rng(1).random((10, 1 << 19))
safetensors.numpy.save_file({f"layer.{i}": row for i, row in enumerate(numbers)}, "mapped.safetensors")
table = pyarrow.table({f"column{i}": row for i, row in enumerate(numbers)})
with pyarrow.OSFile("mapped.arrow", "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
    writer.write_table(table)
numpy.save("mapped.npy", numbers)
for name in ("mapped.safetensors", "mapped.arrow", "mapped.npy"):
    with open(name, "rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def show(what, array):
    print(what, hashlib.sha256(numpy.ascontiguousarray(array)).hexdigest())


tensors = safetensors.numpy.load_file("mapped.safetensors")
for name in sorted(tensors):
    show(name, tensors[name])
with pyarrow.memory_map("mapped.arrow") as source:
    for name, column in zip(table.column_names, pyarrow.ipc.open_file(source).read_all().columns):
        show(name, column.to_numpy())
mapped = numpy.load("mapped.npy", mmap_mode="r")
show("backward", mapped[::-1])
copied = numpy.load("mapped.npy", mmap_mode="c")
copied[3] = 0
show("private", copied)
show("file", numpy.load("mapped.npy", mmap_mode="r"))
