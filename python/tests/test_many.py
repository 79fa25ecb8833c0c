"""Many arrays cost no more threads, descriptors and memory than one."""

import os

import numpy as np
import pytest

import faultless


def threads():
    return len(os.listdir("/proc/self/task"))


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_small_arrays_are_numpys_own(delivery):
    before = threads(), descriptors()
    arrays = [faultless.zeros(10, delivery=delivery) for _ in range(10_000)]
    assert all(array.base is None and array.flags.owndata for array in arrays)
    # Fewer, if a thread of another test has ended meanwhile.
    assert threads() <= before[0] and descriptors() <= before[1]
    arrays = [faultless.zeros(shape, dtype) for shape in (10, (3, 4), [5, 6]) for dtype in (float, "i4", np.dtype("U4"))]
    assert all(array.base is None for array in arrays)
    assert threads() <= before[0] and descriptors() <= before[1]
    assert faultless.zeros((4 << 20) - 1, np.uint8).base is None
    assert isinstance(faultless.zeros(4 << 20, np.uint8).base, faultless.Block)


def regions():
    """Ranges of addresses that only a region has: arrays of these tests are smaller."""
    with open("/proc/self/maps") as file:
        spans = (line.split()[0].split("-") for line in file)
        return sum(int(end, 16) - int(start, 16) >= 1 << 30 for start, end in spans)


EXPLICIT = [
    {"delivery": "kernel"},
    {"delivery": "signal", "window": (4096, 1 << 20), "handlers": 4},
    {"delivery": "thread", "budget": 1 << 20, "huge_pages": False},
    {"events": True, "dtype": np.float32},
    {"delivery": "thread", "order": "F", "dtype": "i4"},
]
MAKERS = {
    "zeros": lambda **named: faultless.zeros(10, **named),
    "empty": lambda **named: faultless.empty((2, 5), **named),
    "ones": lambda **named: faultless.ones(10, **named),
    "full": lambda **named: faultless.full(10, 3.0, **named),
    "zeros_like": lambda **named: faultless.zeros_like(np.ones(10), **named),
    "full_like": lambda **named: faultless.full_like(np.ones(10), 3, **named),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("options", EXPLICIT, ids=str)
def test_small_arrays_with_options_need_no_region(make, options):
    before = threads(), descriptors(), regions()
    arrays = [make(**options) for _ in range(10_000)]
    assert all(array.base is None and array.flags.owndata for array in arrays)
    assert arrays[0].dtype == np.dtype(options.get("dtype", float))
    assert threads() <= before[0] and descriptors() <= before[1] and regions() <= before[2]


@pytest.mark.parametrize("options", [{}, {"delivery": "signal"}, {"delivery": "thread"}, {"delivery": "kernel"}])
def test_large_arrays_share_threads_and_descriptors(options):
    try:
        faultless.Region(1, **options)
    except faultless.RegionError as error:
        pytest.skip(str(error))
    before = threads(), descriptors(), resident()
    # More than there may be regions with signals, or descriptors of a process. The kernel brings a huge page for each.
    by_kernel = faultless.Region(1, **options).delivery == "kernel"
    many = 300 if by_kernel else 3000
    arrays = [faultless.zeros(5 << 20, np.uint8, **options) for _ in range(many)]
    for n, array in enumerate(arrays):
        array[0] = n % 251
    assert threads() <= before[0] + 4 and descriptors() <= before[1] + 4
    assert [array[0] for array in arrays] == [n % 251 for n in range(many)]
    if not by_kernel:
        assert resident() < before[2] + many * 40_000
    del arrays[::2], array
    again = [faultless.zeros(7 << 20, np.uint8, **options) for _ in range(many // 3)]
    assert not any(array[::4096].any() for array in again[::100])
    assert [array[0] for array in arrays] == [n % 251 for n in range(1, many, 2)]


def test_as_many_arrays_as_descriptors_would_not_suffice_for():
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limit[1]))
    try:
        arrays = [faultless.zeros(4 << 20, np.uint8) for _ in range(1000)]
        assert sum(int(array[5]) for array in arrays) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@pytest.mark.parametrize("options", [{}, {"delivery": "signal"}, {"delivery": "thread"}, {"delivery": "kernel"}], ids=str)
def test_many_regions_share_threads(options):
    try:
        faultless.Region(1, **options)
    except faultless.RegionError as error:
        pytest.skip(str(error))
    before = threads(), descriptors()
    regions = [faultless.Region(1 << 20, **options) for _ in range(300)]
    views = [memoryview(region) for region in regions]
    for n, view in enumerate(views):
        view[5000] = n % 251
    # Four handlers with a watchdog each, and the thread that makes huge pages ready; a descriptor of each region.
    assert threads() <= before[0] + 9 and descriptors() <= before[1] + 300 + 12
    assert [view[5000] for view in views] == [n % 251 for n in range(300)]
