"""Regions: buffers, options, errors, ends."""

import gc
import os
import pathlib
import pickle
import weakref

import numpy as np
import pytest

import faultless


def test_regions_are_buffers(delivery):
    region = faultless.Region(100_000, delivery=delivery)
    view = memoryview(region)
    assert len(view) == len(region) == 100_000 and not view.readonly
    view[5] = 7
    assert bytes(view[:7]) == b"\0\0\0\0\0\7\0"
    region.advise(0, 4096, "dontneed")
    assert view[5] == 0
    view.release()
    region.protect(0, 4096, "r")
    view = memoryview(region)
    assert view.readonly
    with pytest.raises(ValueError):
        np.asarray(view)[5] = 1
    view.release()
    region.protect(0, 4096, "none")
    with pytest.raises(faultless.RegionError, match="protect"):
        memoryview(region)


def test_rights_are_not_taken_from_buffers(delivery):
    region = faultless.Region(100_000, delivery=delivery)
    array = np.frombuffer(region, np.uint8)
    view = array[5:10]
    del array
    for rights in "none", "r":
        with pytest.raises(BufferError):
            region.protect(0, 4096, rights)
    view[0] = 3
    del view
    region.protect(0, 4096, "r")
    reading = memoryview(region)
    region.protect(0, 4096, "r")
    with pytest.raises(BufferError):
        region.protect(0, 4096, "none")
    assert reading[5] == 3
    region.protect(0, 4096, "rw")
    assert reading.readonly
    reading.release()
    region.protect(0, 4096, "none")
    region.protect(0, 4096, "rw")
    assert memoryview(region)[5] == 3


def test_closed_regions_are_closed(delivery):
    before = len(os.listdir("/proc/self/fd"))
    with faultless.Region(4 << 20, delivery=delivery) as region:
        view = memoryview(region)
        with pytest.raises(BufferError):
            region.close()
        assert not region.closed and view[5] == 0
        view.release()
    assert region.closed and repr(region) == "Region(closed)"
    region.close()
    uses = [
        lambda: len(region),
        lambda: region.present,
        lambda: region.delivery,
        lambda: region.populate(),
        lambda: region.populate_in_background(),
        lambda: region.protect(0, 4096, "r"),
        lambda: region.advise(0, 4096, "random"),
        lambda: region.counter("region_pgfault"),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises((ValueError, BufferError), match="closed"):
        memoryview(region)
    # The process's own are opened with its first region.
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    with pytest.raises(BufferError), faultless.Region(1) as region:
        view = memoryview(region)
    del view


@pytest.mark.parametrize("memory", [faultless.Region, faultless.Block])
def test_populating_is_interrupted(memory, interrupted):
    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

    made = memory(2 << 30)
    before = resident()
    interrupted(made.populate)
    assert resident() < before + len(made)


def test_populating_refuses_before_it_brings_anything():
    region = faultless.Region(8 << 20)
    for part in [(0, 16 << 20), (0, (4 << 20) + 1), (4 << 20, 0), (4096, 4096), (1 << 70, 1 << 71), (0, 1 << 70)]:
        with pytest.raises(faultless.RegionError):
            region.populate(*part)
    assert region.present == 0


def test_weak_references(delivery):
    region = faultless.Region(1 << 20, delivery=delivery)
    work = region.populate_in_background()
    seen = [weakref.ref(thing) for thing in (region, work, faultless.zeros(4 << 20, delivery=delivery).base)]
    assert seen[0]() is region and seen[1]() is work and seen[2]() is None
    work.cancel()
    del region, work
    gc.collect()
    assert [thing() for thing in seen] == [None] * 3


def test_work_in_the_background_keeps_its_region(delivery):
    region = faultless.Region(32 << 20, delivery=delivery)
    gone = weakref.ref(region)
    work = region.populate_in_background()
    del region
    gc.collect()
    assert work.wait() == 32 << 20 and gone() is not None
    del work
    gc.collect()
    assert gone() is None


def test_work_ends_with_the_region():
    region = faultless.Region(4 << 20)
    work = region.populate_in_background()
    region.close()
    try:
        assert work.wait() <= 4 << 20
    except faultless.RegionError:
        pass
    assert work.done


def test_choices_that_make_no_sense_are_errors():
    wrong = [
        {"handlers": 0},
        {"handlers": -1},
        {"window": (0, 0)},
        {"window": (1, 4096)},
        {"window": (8192, 4096)},
        {"window": (-4096, 4096)},
        {"budget": -1},
        {"delivery": "pigeon"},
        {"delivery": ""},
    ]
    for options in wrong:
        with pytest.raises(ValueError):
            faultless.Region(1, **options)
        with pytest.raises(ValueError):
            faultless.Block(1, **options)
    for options in {"window": 4096}, {"window": (1, 2, 3)}, {"handlers": "2"}, {"handlers": None}, {"wings": 2}:
        with pytest.raises((TypeError, ValueError)):
            faultless.Region(1, **options)
    for make in faultless.Region, faultless.Block:
        for length in 0, -1, -(1 << 80):
            with pytest.raises(ValueError):
                make(length)
        for length in 1 << 50, 1 << 62, 1 << 63, 1 << 80:
            with pytest.raises(MemoryError):
                make(length)
        with pytest.raises(TypeError):
            make("4096")
        assert len(make(np.int64(5))) == 5


def test_errors_say_what_to_do_and_travel():
    with pytest.raises(faultless.RegionError, match="multiples of 4096") as raised:
        faultless.Region(8192).advise(1, 4096, "dontneed")
    with pytest.raises(faultless.RegionError, match="thread delivery") as by_kernel:
        faultless.Region(1, delivery="signal", events=True)
    assert by_kernel.value.errno
    for error in raised.value, by_kernel.value, faultless.RegionError("text"), faultless.RegionError(1, "text"):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is faultless.RegionError
        assert (again.args, str(again), again.errno) == (error.args, str(error), error.errno)
    assert faultless.RegionError.__module__ == "faultless"
    for thing in faultless.Region(1), faultless.Block(1):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
    with pytest.raises(ValueError):
        faultless.counter("nonsense")


def test_faults_are_counted(delivery):
    before = faultless.counter("region_pgfault")
    block = faultless.Block(8 << 20, delivery=delivery)
    np.frombuffer(block, np.uint8)[::4096] = 1
    counted = faultless.counter("region_pgfault") - before
    assert 0 < counted < 2048 if block.delivery in ("thread", "signal") else counted == 0


def test_each_region_counts_for_itself(delivery):
    first, second = (faultless.Region(4 << 20, delivery=delivery) for _ in range(2))
    memoryview(first)[5] = 1
    raises = first.delivery in ("thread", "signal")
    expected = (1, 0) if raises else (0, 0)
    assert tuple(region.counter("region_pgfault") for region in (first, second)) == expected
    assert first.present == 4096 if raises else first.present >= 4096
    assert (second.present == 0) == (second.delivery != "direct")
    with pytest.raises(ValueError):
        first.counter("mmap_served")


def test_memory_is_made_ready_in_the_background():
    reserving = faultless.reserve(8 << 20)
    ready = reserving.wait()
    assert reserving.done and ready == reserving.ready <= reserving.bytes == 8 << 20
    array = faultless.zeros(8 << 20, np.uint8)
    assert not array.any()
    array[:] = 1
    reserving.cancel()
    faultless.release_reserved()
    assert faultless.reserved() == 0
    region = faultless.Region(4 << 20)
    assert region.populate_in_background().wait() == 4 << 20
    assert bytes(memoryview(region)[:4]) == bytes(4)


def test_events_are_for_threads():
    with pytest.raises(faultless.RegionError, match="thread delivery"):
        faultless.Region(1, delivery="signal", events=True)
    try:
        region = faultless.Region(1 << 20, events=True)
    except faultless.RegionError as error:
        return pytest.skip(str(error))
    assert region.delivery == "thread"
    a = np.frombuffer(region, np.uint8)
    a[5] = 3
    child = os.fork()
    if child == 0:
        os._exit(int(a[5]) + int(a[500_000]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
