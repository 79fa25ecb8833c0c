/* Snapshots of a region, read and saved while the region changes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "faultless.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_KERNEL};
    faultless_region *region = NULL;
    faultless_snapshot *snapshot = NULL;
    CHECK(faultless_region_new(4 * MIB, &options, &region) == 0);
    CHECK(faultless_snapshot_take(region, 0, 4 * MIB, &snapshot) == FAULTLESS_E_NO_SNAPSHOTS && snapshot == NULL);
    CHECK(strstr(faultless_strerror(FAULTLESS_E_NO_SNAPSHOTS), "FAULTLESS_THREAD") != NULL);
    faultless_region_free(region);
    CHECK(faultless_snapshot_take(NULL, 0, 1, &snapshot) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_snapshot_length(NULL) == 0 && faultless_snapshot_read(NULL, 0, argv[1], 1) == FAULTLESS_E_ARGUMENT);
    faultless_snapshot_free(NULL);

    options.delivery = FAULTLESS_THREAD;
    if (faultless_region_new(4 * MIB, &options, &region) != 0 || !faultless_region_serves_system_calls(region))
        return 0;
    char *data = faultless_region_data(region);
    memset(data, 1, 3 * MIB);
    CHECK(faultless_snapshot_take(region, 0, 4 * MIB, &snapshot) == 0);
    CHECK(faultless_snapshot_length(snapshot) == 4 * MIB && faultless_snapshot_held(snapshot) == 0);
    memset(data, 2, 4 * MIB);
    CHECK(faultless_snapshot_held(snapshot) >= 3 * MIB);
    static char got[4 * MIB], expected[4 * MIB];
    memset(expected, 1, 3 * MIB);
    CHECK(faultless_snapshot_read(snapshot, 0, got, sizeof got) == 0 && memcmp(got, expected, sizeof got) == 0);
    CHECK(faultless_snapshot_read(snapshot, 4 * MIB, got, 1) == FAULTLESS_E_OUTSIDE);
    faultless_background *saving = NULL;
    CHECK(faultless_snapshot_save(snapshot, "/nowhere/at/all", 0, &saving) == -ENOENT && saving == NULL);
    CHECK(faultless_snapshot_save(snapshot, "/dev/null", 0, &saving) == FAULTLESS_E_TARGET && saving == NULL);
    CHECK(faultless_snapshot_save(snapshot, "/", 0, &saving) == -EISDIR && saving == NULL);
    /* Cancelled while its second step is not due for hours. */
    CHECK(faultless_snapshot_save(snapshot, argv[1], 100, &saving) == 0);
    faultless_background_cancel(saving);
    CHECK(faultless_background_wait(saving) == FAULTLESS_E_CANCELLED && faultless_background_done(saving));
    CHECK(strstr(faultless_strerror(FAULTLESS_E_CANCELLED), "cancelled") != NULL && access(argv[1], F_OK) != 0);
    faultless_background_free(saving);
    CHECK(faultless_snapshot_save(snapshot, argv[1], 1 << 30, &saving) == 0);
    faultless_snapshot_free(snapshot);
    CHECK(faultless_background_wait(saving) == 0 && faultless_background_done(saving));
    faultless_background_free(saving);
    int fd = open(argv[1], O_RDONLY);
    CHECK(read(fd, got, sizeof got) == sizeof got && memcmp(got, expected, sizeof got) == 0);
    CHECK(data[0] == 2);
    faultless_region_free(region);

    /* Of a file: what is written there afterwards, by a call and through a mapping, it does not have. */
    faultless_file *file = NULL;
    faultless_mapping *mapping = NULL;
    CHECK(faultless_file_snapshot(NULL, &snapshot) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_file_allow_snapshots(NULL) == FAULTLESS_E_ARGUMENT);
    int writable = open(argv[1], O_RDWR);
    CHECK(faultless_file_new(writable, 0, &file) == 0 && faultless_file_allow_snapshots(file) == 0);
    CHECK(faultless_file_map_lazy(file, 0, MIB, FAULTLESS_WRITE_FILE, &mapping) == 0);
    CHECK(faultless_mapping_snapshot(mapping, &snapshot) == 0 && faultless_snapshot_length(snapshot) == MIB);
    faultless_snapshot_free(snapshot);
    CHECK(faultless_file_snapshot(file, &snapshot) == 0 && faultless_snapshot_length(snapshot) == 4 * MIB);
    memset(faultless_mapping_data(mapping), 3, 5000);
    CHECK(faultless_snapshot_held(snapshot) == 8192);
    faultless_mapping_free(mapping);
    faultless_file_free(file);
    CHECK(faultless_snapshot_read(snapshot, 0, got, sizeof got) == 0 && memcmp(got, expected, sizeof got) == 0);
    faultless_snapshot_free(snapshot);
    CHECK(pread(fd, got, 5000, 0) == 5000 && got[4999] == 3);
    close(writable);
    return close(fd);
}
