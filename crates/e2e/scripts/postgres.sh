#!/bin/sh
# initdb, pgbench with several clients and a connection for each transaction, a large sort. $1: the programs.
set -eu
rm -rf data run
mkdir run
"$1/initdb" -D data -A trust -U tester --no-sync > init.log
cat >> data/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '$PWD/run'
shared_buffers = 64MB
work_mem = 64MB
fsync = off
END
# It waits for the server, for as long as the test would.
export PGCTLTIMEOUT=120
"$1/pg_ctl" -D data -l server.log -w start > /dev/null
trap '"$1/pg_ctl" -D data -m immediate stop > /dev/null 2>&1 || true' EXIT
export PGHOST="$PWD/run" PGUSER=tester PGDATABASE=postgres
"$1/pgbench" -i -s 2 -q > bench.log 2>&1
"$1/pgbench" -n -c 4 -t 100 >> bench.log 2>&1
echo "clients done: $?"
"$1/pgbench" -n -S -C -c 2 -t 30 >> bench.log 2>&1
echo "connections done: $?"
"$1/psql" -At <<END
select 'transactions: ' || count(*) from pgbench_history;
select 'balanced: ' || case when (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)
    then 't' else 'f' end;
select md5(string_agg(x, ',' order by x)) from (select md5(i::text) x from generate_series(1, 300000) i) s;
END
"$1/pg_ctl" -D data -m fast -w stop > /dev/null
trap - EXIT
rm -rf data run
