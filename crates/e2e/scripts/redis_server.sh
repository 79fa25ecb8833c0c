# Read by scripts that have a server: starts it, and waits until it answers. Its process is $pid.
server() {
    redis-server --port 0 --unixsocket "$PWD/redis.sock" --save '' --appendonly no --dir "$PWD" --daemonize no "$@" > server.log &
    pid=$!
    i=0
    until redis-cli -s redis.sock ping 2>/dev/null | grep -q PONG; do
        i=$((i + 1))
        [ $i -lt 600 ] || { cat server.log >&2; exit 1; }
        sleep 0.1
    done
}
ask() { redis-cli -s redis.sock "$@"; }
trap 'kill $pid 2>/dev/null || true' EXIT
