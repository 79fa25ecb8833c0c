pragma cache_size = -200000;
drop table if exists f;
create table f (k integer, v integer, s text);
with recursive t(i) as (select 1 union all select i + 1 from t where i < 400000)
insert into f select (i * 7919) % 10007, i % 1000, 'text ' || ((i * 31) % 5003) from t;
select count(*), sum(k), sum(v * k), count(distinct s) from f;
create index f_s on f (s, v);
select s, sum(v) from f group by s order by sum(v) desc, s limit 5;
select length(group_concat(s)) from (select s from f order by v, s desc, k);
select sum(length(hex(zeroblob(2000000 + k)))) from (select k from f limit 20);
select count(*), sum(a.v) from f a join f b on a.k = b.k where a.k < 500;
select length(randomblob(30000000)), length(hex(zeroblob(8000000)));
delete from f where v < 500;
vacuum;
select count(*), sum(v) from f;
pragma integrity_check;
