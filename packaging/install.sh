#!/bin/sh
# Copies faultless below a prefix, or removes it from there. It also runs from where it was unpacked: bin/faultless.
#
#   ./install.sh [PREFIX]              /usr/local if none is named
#   ./install.sh --remove [PREFIX]
set -eu

usage() {
    echo "usage: install.sh [--remove] [PREFIX]" >&2
    exit 2
}

remove=no
if [ "${1-}" = --remove ]; then
    remove=yes
    shift
fi
[ $# -le 1 ] || usage
prefix=${1-/usr/local}
case $prefix in
-* | "") usage ;;
/*) ;;
# A relative one is below the directory of the caller.
*) prefix=$(pwd)/$prefix ;;
esac
CDPATH="" cd -- "$(dirname -- "$0")"

find bin lib share -type f | while IFS= read -r file; do
    if [ "$remove" = yes ]; then
        rm -f "$prefix/$file"
    else
        mkdir -p "$prefix/$(dirname "$file")"
        # A program that runs keeps the file that it has: a new one takes its place.
        cp "$file" "$prefix/$file.new"
        mv "$prefix/$file.new" "$prefix/$file"
    fi
done
if [ "$remove" = yes ]; then
    for folder in lib/faultless share/doc/faultless; do
        if [ -d "$prefix/$folder" ]; then
            find "$prefix/$folder" -depth -type d -exec rmdir {} \; 2>/dev/null || true
        fi
    done
    echo "removed from $prefix"
else
    echo "installed: $prefix/bin/faultless"
fi
