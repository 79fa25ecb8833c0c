"""A join with a group by, a window function and a sort over generated tables."""
import sys

import duckdb

rows = int(sys.argv[1])
keys = max(rows // 40, 1)
db = duckdb.connect()
db.sql(f"create table large as select i, (i * 7919) % {keys} as k, (i * 31) % 1000 as v from range({rows}) t(i)")
db.sql(f"create table small as select i as k, 'name ' || (i % 211) as name from range({keys}) t(i)")
joined = "select name, sum(v), count(*) from large join small using (k) group by name order by name"
print(db.sql(joined).fetchall()[:40])
ranked = "select v, row_number() over (partition by v order by i) as r from large"
print(db.sql(f"select sum(r * (v + 1)) from ({ranked})").fetchall())
ordered = f"select i, v from large order by v, i desc limit 1000 offset {rows // 2}"
print(db.sql(f"select count(*), sum(i), sum(v) from ({ordered})").fetchall())
