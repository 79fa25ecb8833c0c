#!/bin/sh
# Forks and exits, and little else: WIDE shells, each of which starts COUNT times a subshell with a pipe of two programs.
# usage: forks.sh FILE WIDE COUNT
file=$1 wide=$2 count=$3

lines() {
    ( cat "$file" | wc -l )
}

storm() {
    done=0
    while [ "$done" -lt "$count" ]; do
        last=$(lines) || exit
        done=$(expr "$done" + 1)
    done
    echo "$done times, $last lines"
}

while [ "$wide" -gt 0 ]; do
    storm &
    wide=$(expr "$wide" - 1)
done
wait
