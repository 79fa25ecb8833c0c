"""Join of a large table with a small one, and a group by."""
import sys

import polars as pl

rows = int(sys.argv[1])
keys = max(rows // 16, 1)
large = pl.select(
    k=pl.int_range(rows, dtype=pl.Int64) * 2654435761 % keys,
    v=pl.int_range(rows, dtype=pl.Int64) % 1000,
)
small = pl.select(
    k=pl.int_range(keys, dtype=pl.Int64),
    g=pl.int_range(keys, dtype=pl.Int64) % 1009,
    w=pl.int_range(keys, dtype=pl.Int64) % 13,
)
joined = large.join(small, on="k")
result = joined.group_by("g").agg(
    (pl.col("v") * pl.col("w")).sum().alias("sum"),
    pl.col("v").max().alias("max"),
    pl.len().alias("len"),
).sort("g")
print(joined.shape, result.shape)
print(result["sum"].sum(), result["max"].sum(), (result["len"].cast(pl.Int64) * result["g"]).sum())
