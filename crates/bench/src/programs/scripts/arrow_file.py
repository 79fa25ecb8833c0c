"""Makes an Arrow file of so many bytes, or adds up what one holds, by mmap."""

import os
import sys

import numpy
import pyarrow
import pyarrow.compute

path, size = sys.argv[1], int(sys.argv[2])
if not os.path.exists(path):
    pieces = 16
    table = pyarrow.table({"number": numpy.arange(size // 8, dtype="int64")})
    with pyarrow.OSFile(path, "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(size // 8 // pieces, 1))
else:
    with pyarrow.memory_map(path) as source:
        table = pyarrow.ipc.open_file(source).read_all()
        print(pyarrow.compute.sum(table["number"]))
