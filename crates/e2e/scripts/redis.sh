#!/bin/sh
# A server with a few hundred MiB, saved in the background while it changes, and loaded again.
set -eu
. "${0%/*}/redis_server.sh"
server
ask eval 'for i = 1, 60000 do redis.call("set", "k" .. i, string.rep(tostring(i), 100)) end return redis.call("dbsize")' 0
ask eval 'for i = 1, 30 do redis.call("set", "big" .. i, string.rep("b", 1000000 + i)) end return redis.call("dbsize")' 0
for round in 1 2 3; do
    ask bgsave > /dev/null
    ask eval 'for i = 1, 60000, 3 do redis.call("append", "k" .. i, ARGV[1]) end return redis.call("dbsize")' 0 "$round"
    ask eval 'for i = 1, 30 do redis.call("setrange", "big" .. i, 500000, ARGV[1]) end return 0' 0 "$round"
    while ask info persistence | grep -q 'rdb_bgsave_in_progress:1'; do sleep 0.05; done
    ask info persistence | tr -d '\r' | grep rdb_last_bgsave_status
done
digest='local s = 0; local t = {}; for i = 1, 60000 do t[#t+1] = redis.sha1hex(redis.call("get", "k" .. i)) end
for i = 1, 30 do t[#t+1] = redis.sha1hex(redis.call("get", "big" .. i)) end return redis.sha1hex(table.concat(t))'
before=$(ask eval "$digest" 0)
echo "digest $before"
ask save
ask shutdown nosave
wait $pid
server
after=$(ask eval "$digest" 0)
[ "$before" = "$after" ] && echo 'saved and loaded: same'
ask flushall
ask shutdown nosave
wait $pid
echo "server done: $?"
