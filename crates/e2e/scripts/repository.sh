#!/bin/sh
# A repository with some history; always the same one.
set -eu
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main made
cd made
git config gc.auto 0
i=0
while [ $i -lt 40 ]; do
    awk -v seed=$i 'BEGIN { for (n = 0; n < 4000; n++) print "line", n, (n * 7919 + (n % 50 == seed ? seed : 0)) % 10007 }' > "file$((i % 8))"
    awk -v seed=$i 'BEGIN { srand(seed); for (n = 0; n < 30000; n++) printf "%c", 97 + int(rand() * 26) }' > "noise$i"
    git add -A
    git commit -q -m "change $i"
    i=$((i + 1))
done
