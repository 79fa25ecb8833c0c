/* A program that uses each function about files, on the file that its argument names. */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <faultless.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int errors(const char *name, int fd, faultless_file *file) {
    faultless_file *other = file;
    faultless_mapping *mapping = NULL;
    size_t done = 7;
    char byte;
    CHECK(faultless_file_new(-1, 0, &other) == -EBADF && other == NULL && faultless_errno() == EBADF);
    CHECK(faultless_file_new(fd, 0, NULL) == FAULTLESS_E_ARGUMENT);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(faultless_file_new(pipes[0], 0, &other) == FAULTLESS_E_NO_FILE && other == NULL);
    CHECK(strstr(faultless_strerror(FAULTLESS_E_NO_FILE), "regular") != NULL);
    CHECK(faultless_file_read(NULL, 0, &byte, 1, &done) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_read(file, 0, NULL, 1, NULL) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_write(file, 0, NULL, 1, NULL) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_prefetch(file, NULL, 1, NULL) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_map(file, 0, UINT64_MAX, 0, &mapping) == FAULTLESS_E_PART && mapping == NULL);
    CHECK(faultless_file_map(NULL, 0, 1, 0, &mapping) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_map(file, 0, 1, 0, NULL) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_punch(file, UINT64_MAX, UINT64_MAX) == FAULTLESS_E_PART);
    CHECK(strstr(faultless_strerror(FAULTLESS_E_PART), "inside") != NULL);
    CHECK(faultless_file_length(NULL) == 0 && faultless_file_present(NULL) == 0 && faultless_file_is_direct(NULL) == 0);
    CHECK(faultless_file_drop(NULL, 0, 1) == 0 && faultless_mapping_data(NULL) == NULL && faultless_mapping_length(NULL) == 0);
    CHECK(faultless_mapping_sync(NULL) == FAULTLESS_E_ARGUMENT && faultless_file_sync(NULL, 0, 1) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_set_length(NULL, 0) == FAULTLESS_E_ARGUMENT);
    faultless_file_free(NULL);
    faultless_mapping_free(NULL);
    CHECK(faultless_file_advise(NULL, 0, 1, FAULTLESS_WILLNEED) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_advise(file, 0, 1, 7) == FAULTLESS_E_ARGUMENT && faultless_file_advise(file, 0, 1, -1) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_advise(file, 0, UINT64_MAX, FAULTLESS_NORMAL) == FAULTLESS_E_PART);
    CHECK(faultless_mapping_advise(NULL, 0, 1, FAULTLESS_NORMAL) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_advise(file, 0, faultless_file_length(file), FAULTLESS_WILLNEED) == 0);
    CHECK(faultless_file_present(file) >= faultless_file_length(file));
    /* Groups. */
    faultless_cache_group *group = NULL;
    CHECK(faultless_cache_group_new(4096, &group) == FAULTLESS_E_ARGUMENT && group == NULL);
    CHECK(faultless_cache_group_new(2 << 20, NULL) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_cache_group_new(2 << 20, &group) == 0 && faultless_cache_group_used(group) == 0);
    CHECK(faultless_cache_group_file(NULL, fd, 0, &other) == FAULTLESS_E_ARGUMENT && other == NULL);
    int again = open(name, O_RDONLY);
    CHECK(faultless_cache_group_file(group, again, 0, &other) == -EBUSY && other == NULL && close(again) == 0);
    FILE *named = tmpfile();
    CHECK(named != NULL && ftruncate(fileno(named), 8 << 20) == 0);
    CHECK(faultless_cache_group_file(group, fileno(named), 1, &other) == 0 && fclose(named) == 0);
    CHECK(faultless_file_map(other, 0, 8 << 20, 0, &mapping) == -ENOMEM && mapping == NULL);
    CHECK(faultless_file_map(other, 0, 1 << 20, 0, &mapping) == 0 && faultless_mapping_advise(mapping, 0, 5, FAULTLESS_HUGE) == 0);
    CHECK(faultless_cache_group_mapped(group) >= 1 << 20 && faultless_cache_group_used(group) <= 2 << 20);
    faultless_cache_group_free(group);
    faultless_mapping_free(mapping);
    faultless_file_free(other);
    faultless_cache_group_free(NULL);
    /* Open for reading alone. */
    int reads = open(name, O_RDONLY);
    CHECK(faultless_file_new(reads, 1, &other) == 0 && close(reads) == 0);
    CHECK(faultless_file_write(other, 0, "x", 1, &done) == -EBADF && done == 0);
    CHECK(faultless_file_sync(other, 0, 1) == -EBADF && faultless_file_map(other, 0, 0, 1, &mapping) == -EBADF);
    faultless_file_free(other);
    return 0;
}

/* Lazy mappings of a file of `length` bytes: 0, or 1 where this machine has none. */
static int lazy(const char *name, size_t length) {
    faultless_file *file = NULL;
    faultless_mapping *mapping = NULL, *copy = NULL;
    int fd = open(name, O_RDWR);
    char was, got;
    CHECK(pread(fd, &was, 1, 5000) == 1);
    CHECK(faultless_file_new(fd, 0, &file) == 0);
    CHECK(faultless_file_deliver(NULL, FAULTLESS_THREAD) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_deliver(file, FAULTLESS_DIRECT) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_map_lazy(NULL, 0, length, FAULTLESS_READ_FILE, &mapping) == FAULTLESS_E_ARGUMENT && mapping == NULL);
    CHECK(faultless_file_map_lazy(file, 0, length, 3, &mapping) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_map_lazy(file, 0, length, FAULTLESS_READ_FILE, NULL) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_map_lazy(file, 0, length + 1, FAULTLESS_READ_FILE, &mapping) == FAULTLESS_E_PART);
    faultless_snapshot *snapshot = NULL;
    CHECK(faultless_file_snapshot(file, &snapshot) == 0);
    CHECK(faultless_file_map_lazy(file, 0, length, FAULTLESS_WRITE_FILE, &mapping) == FAULTLESS_E_NO_SNAPSHOTS && mapping == NULL);
    faultless_snapshot_free(snapshot);
    int error = faultless_file_map_lazy(file, 0, length, FAULTLESS_WRITE_FILE, &mapping);
    if (error == FAULTLESS_E_NO_USERFAULTFD || error == FAULTLESS_E_NO_FEATURE) {
        faultless_file_free(file);
        return close(fd) + 1;
    }
    CHECK(error == 0 && faultless_file_present(file) == 0 && faultless_mapping_length(mapping) == length);
    CHECK(faultless_file_deliver(file, FAULTLESS_BEST) == 0 && faultless_file_deliver(file, FAULTLESS_SIGNAL) == FAULTLESS_E_CHOICE);
    int serves = faultless_mapping_serves_system_calls(mapping);
    CHECK((serves == 0 || serves == 1) && faultless_mapping_serves_system_calls(NULL) == 0);
    CHECK(faultless_file_map_lazy(file, 0, length, FAULTLESS_CHANGE_COPY, &copy) == 0);
    char *bytes = faultless_mapping_data(mapping), *copied = faultless_mapping_data(copy);
    CHECK(copied != bytes && copied[5000] == was && bytes[5000] == was);
    copied[5000] = (char)(was + 1);
    CHECK(faultless_mapping_sync(copy) == 0 && bytes[5000] == was);
    bytes[5000] = (char)(was + 2);
    CHECK(faultless_mapping_sync(mapping) == 0 && copied[5000] == (char)(was + 1));
    faultless_mapping_free(copy);
    CHECK(pread(fd, &got, 1, 5000) == 1 && got == (char)(was + 2));
    faultless_mapping_free(mapping);
    faultless_file_free(file);
    return close(fd);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    faultless_file *file = NULL;
    CHECK(faultless_file_new(fd, 0, &file) == 0);
    faultless_snapshot *snapshot = NULL;
    CHECK(faultless_file_snapshot(file, &snapshot) == FAULTLESS_E_OUTSIDE && snapshot == NULL);
    static char bytes[4 * MIB], got[4 * MIB];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + i / PAGE);
    size_t done = 0;
    CHECK(faultless_file_write(file, 5, bytes, sizeof bytes, &done) == 0 && done == sizeof bytes);
    CHECK(faultless_file_length(file) == 5 + sizeof bytes);
    CHECK(faultless_file_sync(file, 0, UINT64_MAX) == 0);
    CHECK(pread(fd, got, sizeof got, 5) == sizeof got && memcmp(got, bytes, sizeof got) == 0);
    faultless_file_free(file);
    CHECK(lazy(argv[1], 5 + sizeof bytes) >= 0);
    CHECK(faultless_file_new(fd, 0, &file) == 0 && faultless_file_length(file) == 5 + sizeof bytes);
    CHECK(faultless_file_read(file, 0, got, sizeof got, NULL) == 0);
    bytes[4995] = got[5000];
    CHECK(faultless_file_drop(file, 0, UINT64_MAX) > 0 && faultless_file_present(file) == 0);
    faultless_part parts[] = {{3 * MIB, 100}, {0, MIB}};
    CHECK(faultless_file_prefetch(file, parts, 2, &done) == 0 && done == MIB + 100 && faultless_file_present(file) >= done);
    done = 777;
    CHECK(faultless_file_read(NULL, 0, got, 1, &done) == FAULTLESS_E_ARGUMENT && done == 0);
    done = 777;
    CHECK(faultless_file_write(NULL, 0, got, 1, &done) == FAULTLESS_E_ARGUMENT && done == 0);
    done = 777;
    CHECK(faultless_file_prefetch(NULL, parts, 2, &done) == FAULTLESS_E_ARGUMENT && done == 0);
    faultless_part wrong = {4 * MIB, 6};
    CHECK(faultless_file_prefetch(file, &wrong, 1, NULL) == FAULTLESS_E_PART);
    CHECK(faultless_file_read(file, 4 * MIB, got, sizeof got, &done) == 0 && done == 5);
    CHECK(memcmp(got, bytes + 4 * MIB - 5, 5) == 0);
    CHECK(faultless_file_read(file, 5, got, sizeof got, NULL) == 0 && memcmp(got, bytes, sizeof got) == 0);
    int direct = faultless_file_is_direct(file);
    CHECK(direct == 0 || direct == 1);

    faultless_mapping *mapping = NULL, *again = NULL;
    CHECK(faultless_file_map(file, 0, 16, 1, &mapping) == 0 && faultless_mapping_length(mapping) == 16);
    CHECK(faultless_file_map(file, 0, 16, 0, &again) == 0 && faultless_mapping_data(again) == faultless_mapping_data(mapping));
    CHECK(faultless_mapping_sync(again) == 0);
    faultless_mapping_free(again);
    char *data = faultless_mapping_data(mapping);
    CHECK(memcmp(data + 5, bytes, 11) == 0);
    memcpy(data, "by a mapping", 12);
    CHECK(faultless_mapping_sync(mapping) == 0);
    CHECK(pread(fd, got, 12, 0) == 12 && memcmp(got, "by a mapping", 12) == 0);
    CHECK(faultless_file_set_length(file, 15) == -EBUSY && faultless_file_set_length(file, 16) == 0);
    CHECK(lseek(fd, 0, SEEK_END) == 16);
    CHECK(faultless_file_punch(file, 10, 6) == 0 && memcmp(data, "by a mappi\0\0\0\0\0\0", 16) == 0);
    CHECK(errors(argv[1], fd, file) == 0);

    pid_t child = fork();
    if (child == 0)
        _exit(faultless_file_read(file, 0, got, 1, NULL) != FAULTLESS_E_PARENTS || faultless_file_present(file) != 0);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    memcpy(data, "in all", 6);
    CHECK(faultless_files_sync() == 0);
    CHECK(pread(fd, got, 6, 0) == 6 && memcmp(got, "in all", 6) == 0);
    memcpy(data, "at the end", 10);
    faultless_file_free(file);
    CHECK(faultless_mapping_length(mapping) == 16);
    faultless_mapping_free(mapping);
    return close(fd);
}
