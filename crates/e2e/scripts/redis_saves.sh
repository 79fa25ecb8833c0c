#!/bin/sh
# A server that is changed while its child saves it, recorded in between. $RECORD: the command.
set -eu
. "${0%/*}/redis_server.sh"
server --rdb-key-save-delay 10
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
