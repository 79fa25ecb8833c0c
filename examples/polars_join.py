"""A join and a group-by of about 1.6 GiB in Polars; prints checksums that depend on every row."""

import numpy as np
import polars as pl

ROWS = 12_000_000
KEYS = 400_000

rng = np.random.default_rng(7)
facts = pl.DataFrame(
    {
        "key": rng.integers(0, KEYS, ROWS),
        "amount": rng.integers(0, 1_000, ROWS),
        "day": rng.integers(0, 365, ROWS).astype(np.int32),
    }
)
keys = pl.DataFrame({"key": np.arange(KEYS), "group": np.arange(KEYS) % 997, "weight": np.arange(KEYS) % 13})

joined = facts.join(keys, on="key").with_columns((pl.col("amount") * pl.col("weight")).alias("value"))
sums = joined.group_by("group", "day").agg(pl.col("value").sum(), pl.len()).sort("group", "day")
mixed = (sums["value"] * (sums["group"] * 365 + sums["day"] + 1)).sum()
print(f"rows {joined.height} groups {sums.height} value {sums['value'].sum()} checksum {mixed}")
