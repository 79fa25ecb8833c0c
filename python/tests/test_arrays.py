"""Arrays in regions behave as NumPy's own."""

import copy
import gc
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import weakref

import numpy as np
import pytest

import faultless

LARGE = 600_000  # numbers of 8 bytes: an array that is not NumPy's own


def is_numpys(array):
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base is None


def test_arrays_are_what_numpy_gives(delivery):
    a = faultless.zeros((300, 10_000), np.int32, delivery=delivery)
    assert a.shape == (300, 10_000) and a.dtype == np.int32 and not a.any() and not is_numpys(a)
    a[...] = np.arange(3_000_000).reshape(300, 10_000)
    assert (a == np.arange(3_000_000).reshape(300, 10_000)).all()
    assert (a[:, :300].T @ a[:, :300] == a[:, :300].T.copy() @ a[:, :300].copy()).all()
    b = faultless.full((700, 900), 2.5, order="F", delivery=delivery)
    assert b.flags.f_contiguous and (b == 2.5).all() and b.dtype == float and not is_numpys(b)
    assert (faultless.ones(LARGE, delivery=delivery) == 1).all()
    assert faultless.empty(LARGE, delivery=delivery).shape == (LARGE,)


TYPES = [float, "U", "S", "V", "U7", "(2,)i4", "(3,2)f4", [("a", "i4"), ("b", "U3")], "M8[s]", bool, np.float16, None, object]
SHAPES = [3, (), 0, (2, 0), [4, 5], (2, 3, 4), np.int64(4), np.array(5), (np.int8(2), 3), 70_000, (200, 300, 7), LARGE]


@pytest.mark.parametrize("name", ["zeros", "empty", "ones", "full"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_shape_type_and_order_are_numpys(name, order):
    ours, theirs = getattr(faultless, name), getattr(np, name)
    value = (7,) if name == "full" else ()
    for shape in SHAPES:
        for dtype in TYPES:
            if dtype is object and name == "full":
                continue
            try:
                expected = theirs(shape, *value, dtype=dtype, order=order)
            except (TypeError, ValueError) as error:
                with pytest.raises(type(error)):
                    ours(shape, *value, dtype=dtype, order=order)
                continue
            array = ours(shape, *value, dtype=dtype, order=order)
            assert type(array) is np.ndarray and array.flags.writeable
            assert (array.shape, array.dtype, array.strides) == (expected.shape, expected.dtype, expected.strides)
            assert array.flags.aligned
            if name != "empty":
                assert (array == expected).all()
            by_place = ours(shape, *value, dtype, order)
            assert (by_place.shape, by_place.dtype) == (expected.shape, expected.dtype)
    assert ours(3, *value).dtype == theirs(3, *value).dtype
    assert ours(LARGE, *value).dtype == theirs(LARGE, *value).dtype


@pytest.mark.parametrize(
    "arguments, named",
    [
        ((-1,), {}),
        (((-1, -1),), {}),
        (((2, -3),), {}),
        ((1 << 60, np.uint8), {}),
        ((1 << 62,), {}),
        ((1 << 64,), {}),
        (((1 << 40, 1 << 40), np.uint8), {}),
        (((1 << 40, 1 << 20, 0, 1 << 40),), {}),
        (((1,) * 65,), {}),
        (((1 << 10,) * 65,), {}),
        ((2.5,), {}),
        (("3",), {}),
        ((None,), {}),
        (({LARGE},), {}),
        ((iter((LARGE, 2)),), {}),
        (((True, LARGE),), {}),
        ((), {}),
        ((3, "nonsense"), {}),
        ((LARGE, "nonsense"), {}),
        ((LARGE, float, "X"), {}),
        ((3, float, "X"), {}),
    ],
)
def test_mistakes_are_numpys(arguments, named):
    for name in "zeros", "empty":
        with pytest.raises(Exception) as expected:
            getattr(np, name)(*arguments, **named)
        with pytest.raises(Exception) as error:
            getattr(faultless, name)(*arguments, **named)
        assert expected.type in error.type.__mro__ or error.type in expected.type.__mro__
        assert error.type is MemoryError or str(error.value) == str(expected.value)


def test_options_are_looked_at_for_small_arrays_too():
    for wrong in {"delivery": "pigeon"}, {"handlers": 0}, {"window": (8192, 4096)}, {"window": (0, 0)}, {"budget": -1}, {"swap": 1 << 20}:
        for size in 3, LARGE:
            for make in faultless.zeros, faultless.empty, faultless.ones:
                with pytest.raises(ValueError):
                    make(size, **wrong)
            with pytest.raises(ValueError):
                faultless.zeros_like(np.ones(size), **wrong)
            with pytest.raises(ValueError):
                faultless.full(size, 3, **wrong)
    for size in 3, LARGE:
        for unknown in {"wings": 2}, {"zeroed": False}:
            with pytest.raises(TypeError):
                faultless.zeros(size, **unknown)


def prototypes():
    chance = random.Random(5)
    yield np.ones(5)
    yield np.ones((700, 900), order="F")
    yield np.ones((3, 4, 5)).T
    yield np.broadcast_to(np.ones(1000), (1000, 1000))
    yield np.ones((800, 1, 900)).transpose(2, 1, 0)
    yield np.ones(LARGE)[::2]
    yield np.ones((1000, 1000), np.int16)[::-1, ::2]
    for _ in range(12):
        shape = [chance.choice([1, 2, 20, 60]) for _ in range(chance.randint(2, 4))]
        shape[chance.randrange(len(shape))] = 900
        axes = chance.sample(range(len(shape)), len(shape))
        yield np.ones(shape, chance.choice(["i1", "f8", "c16"])).transpose(axes)[:: chance.choice([1, -1, 2])]


@pytest.mark.parametrize("order", ["K", "A", "C", "F"])
def test_arrays_like_others_are_laid_out_as_numpys(order):
    for prototype in prototypes():
        for named in {}, {"dtype": "f4"}, {"dtype": "U2"}, {"shape": (900, 1000)}, {"shape": LARGE}, {"dtype": "(2,)f8"}:
            expected, array = (module.empty_like(prototype, order=order, **named) for module in (np, faultless))
            assert (array.shape, array.dtype, array.strides) == (expected.shape, expected.dtype, expected.strides)
        for name, *value in ["zeros_like"], ["ones_like"], ["full_like", 6]:
            expected, array = (getattr(module, name)(prototype, *value, order=order) for module in (np, faultless))
            assert array.strides == expected.strides and (array == expected).all()
    assert not is_numpys(faultless.zeros_like(np.ones(LARGE)))


def test_arrays_like_subclasses_and_lists_are_numpys():
    masked = np.ma.masked_equal([1, 2, 3], 2)
    for prototype in masked, [1, 2, 3], 7, np.ones(2).view(np.recarray):
        for subok in True, False:
            ours, theirs = (module.zeros_like(prototype, subok=subok) for module in (faultless, np))
            assert type(ours) is type(theirs) and (np.asarray(ours) == np.asarray(theirs)).all()


@pytest.mark.parametrize("subok", [True, False, 0, 1, -3, np.int64(1), np.bool_(False), None, "x", 1.5, [], 1 << 40])
def test_a_choice_of_subclasses_is_as_with_numpy(subok):
    def seen(module, name, value, prototype, **named):
        try:
            return type(getattr(module, name)(prototype, *value, subok=subok, **named))
        except (TypeError, OverflowError) as error:
            return type(error), str(error)

    for name, *value in ["zeros_like"], ["empty_like"], ["ones_like"], ["full_like", 6]:
        for prototype, named in (np.ones(3), {}), (np.ones(LARGE), {}), (np.ones(3), {"shape": LARGE}):
            ours, theirs = (seen(module, name, value, prototype, **named) for module in (faultless, np))
            assert ours == theirs


def test_views_keep_the_memory(delivery):
    a = faultless.zeros(4 << 20, np.uint8, delivery=delivery)
    a[12345] = 9
    view = a[12340:12350].reshape(2, 5)
    block = weakref.ref(a.base)
    del a
    gc.collect()
    assert view[1, 0] == 9 and view.sum() == 9 and block() is not None
    del view
    gc.collect()
    assert block() is None


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_goes_with_the_last_view_and_comes_as_zeroes(delivery):
    faultless.zeros(64 << 20, np.uint8, delivery=delivery)[::4096] = 1
    before = resident()
    for _ in range(20):
        a = faultless.zeros(64 << 20, np.uint8, delivery=delivery)
        assert not a[::4096].any()
        a[::4096] = 1
        del a
    assert resident() < before + (200 << 20)


def test_memory_is_not_brought_that_is_not_used():
    # Most of the machine's memory, of which the kernel grants no more to an array.
    array = faultless.zeros(os.sysconf("SC_PHYS_PAGES") * 4096 * 3 // 4, np.uint8)
    before = resident()
    assert array[len(array) // 2] == 0 and array.base.delivery in ("thread", "kernel")
    assert resident() < before + (100 << 20)


SPARSE = {
    "the beginning is small": ({}, lambda array: slice(0, len(array) // 20)),
    "no budget": ({"budget": 0}, lambda array: slice(0, None, 2 << 20)),
    "a small window": ({"window": (4096, 1 << 20)}, lambda array: slice(0, None, 2 << 20)),
}


@pytest.mark.parametrize("options, part", SPARSE.values(), ids=SPARSE)
def test_the_kernel_brings_no_huge_pages_that_are_not_wanted(options, part):
    before, arrays = resident(), []
    for _ in range(2):
        for _ in range(20):
            array = faultless.zeros(8 << 20, np.uint8, delivery="kernel", **options)
            array[part(array)] = 1
            arrays.append(array)
        # Of 8 MiB each, a huge page at least would be 80 MiB.
        assert resident() < before + (30 << 20)
        # Another array begins where the middle of one was.
        del arrays[:], array
        arrays.append(faultless.zeros(4 << 20, np.uint8, delivery="kernel", **options))


def test_arrays_are_copied_where_they_go(delivery):
    a = faultless.zeros(np.array(LARGE), np.int64, delivery=delivery)
    a[:5] = range(5)
    for b in pickle.loads(pickle.dumps(a)), copy.deepcopy(a), a.copy():
        a[0] += 1
        assert b.shape == (LARGE,) and list(b[1:5]) == [1, 2, 3, 4] and b[0] < a[0]


def test_forked_children_have_arrays_of_their_own(delivery):
    a = faultless.zeros(4 << 20, np.uint8, delivery=delivery)
    a[:5000] = 1
    child = os.fork()
    if child == 0:
        right = 1
        try:
            a[100_000] = 2
            b = faultless.full(4 << 20, 3, np.uint8, delivery=delivery)
            right = int(a.sum() != 5002 or (b != 3).any())
            del a, b
            gc.collect()
        finally:
            os._exit(right)
    assert os.waitpid(child, 0)[1] == 0
    assert a.sum() == 5000


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
    assert kept > 0 or faultless.counter("region_unzeroed") == before


def test_numpy_is_imported_when_an_array_is_made():
    code = "import faultless, sys; faultless.Region(1); assert 'numpy' not in sys.modules; faultless.ones(1); assert 'numpy' in sys.modules"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


def test_arguments_that_are_numpys_alone_go_to_numpy():
    like = np.ones(8 << 20, "u1")
    arrays = [faultless.zeros(8 << 20, "u1", like=like, delivery="kernel"), faultless.ones(3, like=like)]
    if int(np.__version__.split(".")[0]) >= 2:
        arrays += [faultless.zeros(8 << 20, "u1", device="cpu"), faultless.zeros_like(like, device="cpu")]
        with pytest.raises(ValueError):
            faultless.zeros(3, device="gpu")
    assert all(type(array) is np.ndarray and array.base is None for array in arrays)
    with pytest.raises(ValueError):
        faultless.zeros(3, like=like, delivery="never")


def test_errors_name_the_function():
    for name in ("zeros", "empty", "ones", "full", "zeros_like", "empty_like", "ones_like", "full_like"):
        given = [np.zeros(3) if name.endswith("like") else 5] + ["full" in name] * ("full" in name)
        for made in given, [np.zeros(LARGE) if name.endswith("like") else LARGE] + given[1:]:
            with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'x'$"):
                getattr(faultless, name)(*made, x=1)


def test_the_example_sorts_more_than_its_memory():
    example = pathlib.Path(__file__).parents[1] / "examples" / "swap.py"
    command = [sys.executable, example, "--mib", "16", "--memory", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "RegionError" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert "sorted: True, the same numbers: True" in done.stdout
    assert int(re.search(r"swap_out: (\d+)", done.stdout)[1]) >= 8


def test_an_array_that_is_larger_than_its_memory():
    try:
        array = faultless.zeros((16 << 20) // 8, swap=4 << 20)
    except faultless.RegionError as error:
        pytest.skip(str(error))
    array[:] = np.arange(len(array))
    assert np.array_equal(array, np.arange(len(array)))
    assert array[::512].sum() == np.arange(0, len(array), 512).sum()
