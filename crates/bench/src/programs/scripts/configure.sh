#!/bin/sh
# What a configure script does: many short programs, each on a small file.
# usage: configure.sh COUNT
set -e
count=$1
work=$(mktemp -d ./configure.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
found=
i=0
while [ "$i" -lt "$count" ]; do
    for header in stdio.h stdlib.h no/such/header.h; do
        printf '#include <%s>\nint x_%s;\n' "$header" "$i" > conftest.c
        name=$(echo "$header" | sed 's/[^a-zA-Z0-9]/_/g' | tr a-z A-Z)
        if cc -E conftest.c > conftest.i 2> conftest.err; then
            if grep -q x_$i conftest.i; then found="$found HAVE_$name"; fi
        else
            sed -n 's/^.*error: //p' conftest.err > /dev/null
            found="$found NO_$name"
        fi
    done
    cat > conftest.in <<END
prefix=@prefix@
count=@count@
END
    sed -e "s|@prefix@|/usr/local|" -e "s|@count@|$i|" conftest.in > conftest.out
    test "$(grep -c = conftest.out)" = 2
    rm -f conftest.*
    i=$(expr "$i" + 1)
done
echo "$found" | tr ' ' '\n' | sort | uniq -c
