"""Join, group by, sort and a lazy query."""

import numpy as np
import polars as pl

rng = np.random.default_rng(3)
n = 4_000_000
facts = pl.DataFrame({"k": rng.integers(0, 100_000, n), "v": rng.integers(0, 1000, n)})
keys = pl.DataFrame({"k": np.arange(100_000), "g": np.arange(100_000) % 101, "name": [f"key {i}" for i in range(100_000)]})
for _ in range(2):
    joined = facts.join(keys, on="k")
    groups = joined.group_by("g").agg(pl.col("v").sum(), pl.col("name").n_unique()).sort("g")
    print(groups.write_csv())
lazy = joined.lazy().filter(pl.col("v") > 500).with_columns(pl.col("name").str.len_bytes().alias("l"))
print(lazy.select(pl.col("l").sum(), pl.col("v").max(), pl.len()).collect().write_csv())
order = joined.sort("v", "k", descending=[True, False])
print(order.head(5).write_csv(), (order["k"] * pl.Series(np.arange(n) % 1009)).sum())
