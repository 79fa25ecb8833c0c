"""Arrays in regions behave as NumPy's own."""

import copy
import gc
import io
import os
import pathlib
import pickle
import re

import numpy as np
import pytest

import faultless

DELIVERIES = ["direct", "thread", "signal"]


@pytest.fixture(params=DELIVERIES)
def delivery(request):
    try:
        faultless.Region(1, delivery=request.param)
    except faultless.RegionError as error:
        pytest.skip(str(error))
    return request.param


def test_arrays_are_what_numpy_gives(delivery):
    a = faultless.zeros((300, 1000), np.int32, delivery=delivery)
    assert a.shape == (300, 1000) and a.dtype == np.int32 and not a.any()
    a[...] = np.arange(300_000).reshape(300, 1000)
    assert (a == np.arange(300_000).reshape(300, 1000)).all()
    assert (a.T @ a == a.T.copy() @ a.copy()).all()
    b = faultless.full((7, 3), 2.5, order="F", delivery=delivery)
    assert b.flags.f_contiguous and (b == 2.5).all() and b.dtype == float
    assert faultless.empty(0).size == 0
    assert faultless.empty(5, np.uint8).shape == (5,)


def test_views_keep_the_region(delivery):
    a = faultless.zeros(1 << 20, np.uint8, delivery=delivery)
    a[12345] = 9
    view = a[12340:12350].reshape(2, 5)
    del a
    gc.collect()
    assert view[1, 0] == 9 and view.sum() == 9


def test_memory_goes_with_the_last_view():
    def mapped():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * 4096

    before = mapped()
    for _ in range(20):
        faultless.zeros(64 << 20, np.uint8, delivery="direct" if os.geteuid() else "best")[::4096] = 1
    assert mapped() < before + (200 << 20)


def test_arrays_are_copied_where_they_go(delivery):
    a = faultless.zeros(np.array(5), np.int64, delivery=delivery)
    a[:] = range(5)
    for b in pickle.loads(pickle.dumps(a)), copy.deepcopy(a), a.copy():
        a[0] += 1
        assert b.shape == (5,) and list(b[1:]) == [1, 2, 3, 4] and b[0] < a[0]
    with pytest.raises(TypeError):
        pickle.dumps(faultless.Region(1))


def test_forked_children_have_arrays_of_their_own(delivery):
    a = faultless.zeros(1 << 20, np.uint8, delivery=delivery)
    a[:5000] = 1
    child = os.fork()
    if child == 0:
        right = 1
        try:
            a[100_000] = 2
            b = faultless.full(1 << 20, 3, np.uint8, delivery=delivery)
            right = int(a.sum() != 5002 or (b != 3).any())
            del a, b
            gc.collect()
        finally:
            os._exit(right)
    assert os.waitpid(child, 0)[1] == 0
    assert a.sum() == 5000


def test_stubs_have_what_the_package_has():
    stubs = pathlib.Path(faultless.__file__).with_name("__init__.pyi").read_text()
    names = set(re.findall(r"^(?:from \S+ import \S+ as|def) (\w+)", stubs, re.M))
    assert names == set(faultless.__all__)


def test_regions_are_buffers(delivery):
    region = faultless.Region(100_000, delivery=delivery)
    view = memoryview(region)
    assert len(view) == len(region) == 100_000 and not view.readonly
    view[5] = 7
    assert bytes(view[:7]) == b"\0\0\0\0\0\7\0"
    if region.serves_system_calls:
        io.BytesIO(b"x" * 50_000).readinto(view[50_000:])
        assert view[50_001] == ord("x")
    region.advise(0, 4096, "dontneed")
    assert view[5] == 0
    region.protect(0, 4096, "r")
    assert memoryview(region).readonly
    with pytest.raises(ValueError):
        np.asarray(memoryview(region))[5] = 1
    region.protect(0, 4096, "none")
    with pytest.raises(faultless.RegionError, match="protect"):
        memoryview(region)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="one of"):
        faultless.Region(1, delivery="pigeon")
    with pytest.raises(faultless.RegionError, match="multiples of 4096"):
        faultless.Region(8192).advise(1, 4096, "dontneed")
    with pytest.raises(TypeError):
        faultless.zeros(3, object)
    with pytest.raises(OSError):
        faultless.zeros(1 << 60, np.uint8)
    with pytest.raises(OSError):
        faultless.zeros((1 << 40, 1 << 40), np.uint8)
    with pytest.raises(ValueError):
        faultless.zeros((-1, -1))
    with pytest.raises(ValueError):
        faultless.counter("nonsense")


def test_faults_are_counted(delivery):
    before = faultless.counter("region_pgfault")
    faultless.zeros(8 << 20, np.uint8, delivery=delivery)[::4096] = 1
    counted = faultless.counter("region_pgfault") - before
    assert counted == 0 if delivery == "direct" else 0 < counted < 2048


def test_each_region_counts_for_itself(delivery):
    first, second = (faultless.Region(4 << 20, delivery=delivery) for _ in range(2))
    memoryview(first)[5] = 1
    expected = (0, 0) if delivery == "direct" else (1, 0)
    assert tuple(region.counter("region_pgfault") for region in (first, second)) == expected
    assert first.present == (4 << 20 if delivery == "direct" else 4096)
    with pytest.raises(ValueError):
        first.counter("mmap_served")


def test_empty_arrays_may_have_old_bytes_and_zeros_never():
    try:
        faultless.Region(1, delivery="signal")
    except faultless.RegionError as error:
        pytest.skip(str(error))
    options = {"delivery": "signal", "window": (2 << 20, 4 << 20)}
    before = faultless.counter("region_unzeroed")
    for _ in range(3):
        a = faultless.empty(12 << 20, np.uint8, **options)
        a[...] = 7
        del a
        gc.collect()
        assert not faultless.zeros(12 << 20, np.uint8, **options).any()
        assert np.isin(faultless.empty(12 << 20, np.uint8, **options), [0, 7]).all()
    kept = faultless.release_reserved()
    assert (faultless.counter("region_unzeroed") > before) == (kept > 0)


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
