"""read_csv, join, group by, pivot and to_csv."""

import hashlib
import io

import numpy as np
import pandas as pd

rng = np.random.default_rng(2)
n = 600_000
frame = pd.DataFrame({"k": rng.integers(0, 5000, n), "v": rng.integers(0, 1000, n), "s": rng.integers(0, 9, n).astype(str)})
text = frame.to_csv(index=False)
print("csv", hashlib.sha256(text.encode()).hexdigest())
again = pd.read_csv(io.StringIO(text), dtype={"s": str})
print("equal", again.equals(frame.astype({"s": again["s"].dtype})))
right = pd.DataFrame({"k": np.arange(5000), "w": np.arange(5000) % 17})
joined = again.merge(right, on="k")
print("groups", joined.groupby(["w", "s"])["v"].sum().to_csv())
print("pivot", int(joined.pivot_table(index="k", columns="s", values="v", aggfunc="sum", fill_value=0).to_numpy().sum()))
print("sorted", hashlib.sha256(joined.sort_values(["k", "v", "s", "w"]).to_numpy().astype(str).tobytes()).hexdigest())
