"""Signal handlers run while files are read, mapped and written, and their exceptions end that."""

import functools
import mmap
import operator
import os
import time

import pytest

import faultless

GIB = 1 << 30


@pytest.fixture
def file(tmp_path):
    with faultless.open(tmp_path / "data", "w+") as file:
        file.truncate(GIB)
        yield file


@pytest.fixture
def ends_early(interrupted):
    """A function that has a call be ended by an exception of a signal handler, and not just be followed by it."""

    def ends(call, *args, **options):
        done = []
        # No handler runs between the end of such a call and what is done with its answer.
        interrupted(lambda: done.extend(map(operator.call, [functools.partial(call, *args, **options)])))
        assert len(done) == 0

    return ends


def test_reading_is_interrupted(file, ends_early):
    ends_early(file.read, 0, GIB)
    assert file.read(GIB - 5, 10) == bytes(5)
    buffer = mmap.mmap(-1, GIB)
    ends_early(file.readinto, 0, buffer)
    file.write(GIB - 3, b"end")
    assert file.readinto(GIB - 5, buffer) == 5 and buffer[:5] == b"\0\0end"


def test_mapping_is_interrupted(tmp_path, file, ends_early):
    ends_early(file.map, writable=True)
    assert file.present < GIB
    file.drop()
    ends_early(file.map, 5)
    assert file.present < GIB
    for mode in ("r", "r+"):
        file.drop()
        ends_early(faultless.memmap, tmp_path / "data", "u1", mode)
        assert file.present < GIB
    # Nothing holds what has come.
    file.truncate(0)


def test_what_goes_on_aside_is_interrupted(tmp_path, file, interrupted, ends_early):
    ends_early(file.prefetch, [(0, GIB)])
    mapping = file.map(writable=True)
    memoryview(mapping)[GIB - 1] = 7
    # These may be done before the signal comes.
    for call in (file.sync, mapping.flush, file.close):
        interrupted(lambda call=call: (call(), time.sleep(60)))
    assert file.closed
    # It goes on, and whoever waits for it has all of it.
    mapping.flush()
    with open(tmp_path / "data", "rb") as plain:
        assert os.pread(plain.fileno(), 2, GIB - 2) == b"\0\7"


def test_errors_come_from_where_the_work_is_done(tmp_path, file):
    reads = faultless.open(tmp_path / "data")
    for wrong in (
        lambda: reads.sync(),
        lambda: reads.map(writable=True),
        lambda: file.map(1, GIB + 1),
        lambda: file.map(GIB + 1),
        lambda: file.prefetch([(0, GIB), (0, GIB + 1)]),
    ):
        with pytest.raises(OSError):
            wrong()
    assert file.present == 0
