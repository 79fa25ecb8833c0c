"""Parquet and IPC there and back, compute and group by; with its bundled allocators."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

rng = np.random.default_rng(4)
n = 2_000_000
values = {"k": rng.integers(0, 1000, n), "v": rng.integers(0, 10_000, n), "s": [f"s{i % 5000}" for i in range(n)]}
for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
    pa.set_memory_pool(pool)
    table = pa.table(values)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data = sink.getvalue()
    print("parquet", data.size, hashlib.sha256(data).hexdigest())
    again = pq.read_table(pa.BufferReader(data))
    print("equal", again.equals(table))
    groups = again.group_by("k").aggregate([("v", "sum"), ("s", "count_distinct")]).sort_by("k")
    print("groups", pc.sum(pc.multiply(groups["v_sum"], groups["k"])).as_py(), groups["s_count_distinct"][7].as_py())
    order = pc.sort_indices(again, [("v", "descending"), ("k", "ascending"), ("s", "ascending")])
    print("sorted", again.take(order).slice(1000, 3).to_pylist())
