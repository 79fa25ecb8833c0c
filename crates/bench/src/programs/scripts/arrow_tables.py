"""Parquet there and back, a group by and a sort, in PyArrow's own memory pool."""
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

rows = int(sys.argv[1])


def numbers(seed, below):
    return pc.cast(pc.floor(pc.multiply(pc.random(rows, initializer=seed), below)), pa.int64())


table = pa.table({"k": numbers(1, 1000), "v": numbers(2, 1_000_000), "s": pc.cast(numbers(3, 5000), pa.string())})
sink = pa.BufferOutputStream()
pq.write_table(table, sink)
again = pq.read_table(pa.BufferReader(sink.getvalue()))
groups = again.group_by("k").aggregate([("v", "sum"), ("s", "count_distinct")]).sort_by("k")
print(again.num_rows, pc.sum(pc.multiply(groups["v_sum"], groups["k"])), pc.sum(groups["s_count_distinct"]))
order = pc.sort_indices(again, [("v", "descending"), ("k", "ascending"), ("s", "ascending")])
print(again.take(order).slice(1000, 3).to_pylist())
