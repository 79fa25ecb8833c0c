"""Queries over a generated table, also out of order and with a window function."""

import duckdb

db = duckdb.connect()
db.sql("create table f as select i, (i * 7919) % 100003 as k, (i * 31) % 1000 as v from range(4000000) t(i)")
db.sql("create table d as select i as k, 'name ' || (i % 211) as name from range(100003) t(i)")
for _ in range(2):
    print(db.sql("select name, sum(v), count(*) from f join d using (k) group by name order by name").fetchall()[:40])
    print(db.sql("select sum(r * (v + 1)) from (select v, row_number() over (partition by v order by i) r from f)").fetchall())
print(db.sql("select count(*), sum(i) from (select * from f order by v, i desc limit 1000 offset 2000000)").fetchall())
