#!/bin/sh
# What a configure script does: hundreds of short programs, small files, a compiler's answers.
set -eu
: > config.h
for header in stdio.h stdlib.h string.h unistd.h sys/mman.h no_such_header.h; do
    name=$(echo "HAVE_$header" | tr 'a-z/.' 'A-Z__')
    printf '#include <%s>\nint main(void) { return 0; }\n' "$header" > conftest.c
    if cc -c conftest.c -o conftest.o 2>/dev/null; then
        echo "checking for $header... yes"
        echo "#define $name 1" >> config.h
    else
        echo "checking for $header... no"
        echo "#undef $name" >> config.h
    fi
done
for function in malloc mmap mremap no_such_function; do
    name=$(echo "HAVE_$function" | tr a-z A-Z)
    printf 'char %s(void);\nint main(void) { return %s(); }\n' "$function" "$function" > conftest.c
    if cc -w -fno-builtin conftest.c -o conftest 2>/dev/null; then
        echo "#define $name 1" >> config.h
    else
        echo "#undef $name" >> config.h
    fi
done
printf '#include <stdio.h>\nint main(void) { printf("%%zu\\n", sizeof(long)); }\n' > conftest.c
cc conftest.c -o conftest
echo "size of long: $(./conftest)"
i=0
while [ $i -lt 60 ]; do
    word=$(expr $i \* 7 % 13 | sed 's/^/v/' | tr -d '\n')
    echo "s/@$word@/$i/g" | cat >> conftest.sed
    i=$((i + 1))
done
echo '@v1@ @v2@ @v3@' | sed -f conftest.sed | awk '{ print $3, $2, $1 }'
sort conftest.sed | uniq | wc -l
rm -f conftest*
