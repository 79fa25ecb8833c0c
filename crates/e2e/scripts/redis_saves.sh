#!/bin/sh
# A server that is changed while its child saves it, recorded in between. $RECORD: the command.
set -eu
redis-server --port 0 --unixsocket "$PWD/redis.sock" --save '' --appendonly no --dir "$PWD" --rdb-key-save-delay 10 > server.log &
pid=$!
trap 'kill $pid 2>/dev/null || true' EXIT
ask() { redis-cli -s redis.sock "$@" > /dev/null; }
i=0
until redis-cli -s redis.sock ping 2>/dev/null | grep -q PONG; do
    i=$((i + 1))
    [ $i -lt 600 ] || { cat server.log >&2; exit 1; }
    sleep 0.1
done
ask eval 'for i = 1, 100000 do redis.call("set", "k" .. i, string.rep("x", 1000)) end return 0' 0
"$RECORD" record -p $pid -o it.rec 2> record.log &
recorder=$!
# It says so when it has begun, or ends.
until [ -s record.log ]; do sleep 0.05; done
cat record.log >&2
ask bgsave
ask eval 'for i = 1, 100000 do redis.call("setrange", "k" .. i, 5, "y") end return 0' 0
while redis-cli -s redis.sock info persistence | grep -q 'rdb_bgsave_in_progress:1'; do sleep 0.05; done
cat /proc/$pid/smaps > smaps
kill -INT $recorder
wait $recorder
ask shutdown nosave || true
wait $pid || true
trap - EXIT
