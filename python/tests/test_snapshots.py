"""Snapshots of arrays, and files of them."""

import errno
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import faultless


@pytest.fixture
def blocks():
    """Whether arrays have snapshots here without a copy."""
    try:
        array = faultless.zeros((1024, 1024), delivery="thread")
        faultless.snapshot(array)
    except faultless.RegionError as error:
        pytest.skip(str(error))
    return {"delivery": "thread"}


def numbers(shape, dtype=float, **options):
    array = faultless.zeros(shape, dtype, **options)
    array[...] = np.arange(array.size).reshape(shape)
    return array


def test_a_snapshot_holds_what_was_there(blocks):
    array = numbers((1000, 1500), **blocks)
    before = array.copy()
    first = faultless.snapshot(array)
    assert first.held == 0 and first.shape == (1000, 1500) and first.nbytes == array.nbytes
    array[500] = -1
    second = faultless.snapshot(array)
    array *= 2
    assert (first.array() == before).all()
    before[500] = -1
    assert (second.array() == before).all() and second.held > 0
    del first
    assert (second.array() == before).all()
    del array
    assert (second.array() == before).all()
    assert (numbers((1000, 1500), **blocks)[3] == np.arange(4500, 6000)).all()


def test_views_and_orders(blocks):
    array = np.asfortranarray(np.arange(1_200_000.0).reshape(1200, 1000))
    ours = faultless.empty_like(array, **blocks)
    ours[...] = array
    snapshot = faultless.snapshot(ours)
    part = faultless.snapshot(ours[:, 100:300])
    ours[...] = 0
    assert (snapshot.array() == array).all() and snapshot.array().flags.f_contiguous
    assert (part.array() == array[:, 100:300]).all()
    for wrong in (ours[::2], np.array([None])):
        with pytest.raises(ValueError):
            faultless.snapshot(wrong)
    small = faultless.ones(3)
    copy = faultless.snapshot(small)
    small[:] = 5
    assert copy.array().tolist() == [1, 1, 1] and copy.held == 24


@pytest.mark.parametrize("delivery", ["kernel", "direct", "signal"])
def test_what_cannot_be_exact_is_refused(delivery):
    with pytest.raises(faultless.RegionError, match="snapshot"):
        faultless.snapshot(faultless.zeros((1024, 1024), delivery=delivery))


TYPES = [np.int8, ">f8", "U5", [("a", "i4"), ("b", "f8", (2,))]]


@pytest.mark.parametrize("order", ["C", "F"])
def test_files_are_numpys(tmp_path, blocks, order):
    path = tmp_path / "state.npy"
    for dtype in TYPES:
        for shape in [(), 3, (2, 3), (1200, 1024)]:
            array = faultless.zeros(shape, dtype, order, **blocks)
            if array.dtype.names is None:
                array[...] = np.arange(array.size).reshape(shape, order=order) % 100
            faultless.save(path, array)
            theirs, ours = np.load(path), faultless.load(path)
            for read in (theirs, ours):
                assert read.dtype == array.dtype and read.shape == array.shape and (read == array).all()
                assert read.flags.c_contiguous == array.flags.c_contiguous
            os.remove(path)
            np.save(path, array)
            assert (faultless.load(path, lazy=False) == array).all()
    assert os.listdir(tmp_path) == ["state.npy"]


LETTERS = ["é", "ж", "日本", "a\u2028", "'\"\\", "𝄞", "\udcff"]
# Each of these headers is longer than 64 KiB, or than a page.
LONG = [[(letter * 100 + str(n), "u1") for n in range(count)] for letter, count in (("a", 700), ("é", 700), ("ж", 50), ("ж", 700))]


@pytest.mark.parametrize("dtype", [*([(name, "f8"), ("b", "i4")] for name in LETTERS), *LONG])
@pytest.mark.filterwarnings("ignore:Stored array in format")
def test_names_of_fields_have_any_letters(tmp_path, dtype):
    path = tmp_path / "state.npy"
    for shape in (3, (1200, 1024)) if len(dtype) == 2 else (3,):
        array = np.zeros(shape, dtype)
        array["b" if len(dtype) == 2 else dtype[5][0]] = 7
        np.save(path, array)
        theirs = path.read_bytes()
        if len(dtype) < 700:
            assert (faultless.load(path) == array).all() and faultless.load(path).dtype == array.dtype
        else:
            with pytest.raises(ValueError, match="header"):
                np.load(path)
            with pytest.raises(ValueError, match="header"):
                faultless.load(path)
        faultless.save(path, array)
        ours = path.read_bytes()
        assert ours[:8] == theirs[:8], "the version is that of NumPy"
        assert (len(ours) - array.nbytes) % 64 == 0 and len(ours) - array.nbytes >= 4096
        read = np.load(path, max_header_size=1 << 20)
        assert read.dtype == array.dtype and (read == array).all()
        if len(dtype) < 700:
            assert (faultless.load(path) == array).all()


def header(text, length=None):
    text = text.encode() + b"\n"
    return b"\x93NUMPY\3\0" + (length or len(text)).to_bytes(4, "little") + text


@pytest.mark.parametrize(
    "head",
    [
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }", 1000),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (True, 5), }"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (5, ж), }"),
        header("{'descr': '<f8', 'shape': (5,), }"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (5,), }" + " " * 10_000),
        header("{'descr': [('ж', '|O')], 'fortran_order': False, 'shape': (5,), }"),
        header("").replace(b"\n", b"\xff"),
        b"\x93NUMPY\3\0\1",
        b"\x93NUMPY\1\0" + header("{'descr': '<f8', 'fortran_order': False, 'shape': (True, 5), }")[8:].replace(b"\0\0", b"", 1),
    ],
)
def test_a_header_that_is_wrong_is_refused(tmp_path, head):
    path = tmp_path / "state.npy"
    path.write_bytes(head if len(head) < 12 or b", 1000" in head else head + bytes(400))
    for lazy in (True, False):
        with pytest.raises(ValueError):
            faultless.load(path, lazy=lazy)


PADDED = np.dtype([("a", "i1"), ("b", "f8"), ("c", [("d", "i1"), ("e", "i4")])], align=True)
GAPS = np.dtype({"names": ["a"], "formats": ["u1"], "offsets": [7], "itemsize": 12})


@pytest.mark.parametrize("dtype", [PADDED, GAPS, np.dtype((np.record, PADDED))])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_lies_between_fields_is_the_arrays(tmp_path, dtype, order):
    random = np.random.default_rng(1)
    path = tmp_path / "state.npy"

    def lies(array):
        # A copy of NumPy's would have the fields alone.
        return (array if array.flags.c_contiguous else array.T).reshape(-1).view("u1")

    for n in [0, 1, *range(2, 200, 3)]:
        array = np.empty((n, 2), dtype, order)
        lies(array)[...] = random.integers(1, 256, array.nbytes)
        np.save(path, array)
        theirs = path.read_bytes()
        snapshot = faultless.snapshot(array)
        for what in (array, snapshot):
            faultless.save(path, what)
            ours = path.read_bytes()
            assert len(ours) - 4096 == array.nbytes
            assert ours[4096:] == theirs[len(theirs) - array.nbytes :]
        copy = snapshot.array()
        assert copy.dtype == dtype and copy.flags.f_contiguous == array.flags.f_contiguous
        assert (lies(copy) == lies(array)).all()


def test_a_state_is_saved_while_it_changes(tmp_path, blocks):
    state = faultless.zeros((4, 1 << 20), np.int64, **blocks)
    ends = threading.Event()
    rounds = []

    def compute():
        while not ends.is_set():
            # A state is of one round alone.
            state[...] += 1
            rounds.append(1)

    for i in range(5):
        state[...] = i
        saving = faultless.save(tmp_path / "state.npy", faultless.snapshot(state), rate=400 << 20, wait=False)
        assert saving.bytes >= state.nbytes
        thread = threading.Thread(target=compute)
        thread.start()
        assert saving.wait() == saving.bytes and saving.done
        ends.set()
        thread.join()
        ends.clear()
        assert (faultless.load(tmp_path / "state.npy", lazy=False) == i).all()
    assert rounds


def test_errors_leave_what_was_there(tmp_path, blocks):
    array = numbers((1024, 1024), **blocks)
    with pytest.raises(OSError):
        faultless.save(tmp_path / "no" / "state.npy", array)
    path = tmp_path / "state.npy"
    path.write_bytes(b"something else")
    with pytest.raises(ValueError):
        faultless.load(path)
    saving = faultless.save(path, array, rate=100, wait=False)  # Its second step is not due for hours.
    saving.cancel()
    with pytest.raises(faultless.RegionError, match="cancelled"):
        saving.wait()
    assert saving.done
    assert path.read_bytes() == b"something else"


@pytest.mark.parametrize("side", [10, 1024])
def test_a_file_that_cannot_be_written_is_pythons_error(tmp_path, side, blocks):
    array = numbers((side, side), **blocks)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop/again")
    names = ["no/state.npy", "file/state.npy", ".", "x" * 256, "loop/state.npy", ""]
    for name in names:
        path = str(tmp_path / name) if name else ""
        with pytest.raises(OSError) as theirs:
            open(path, "wb")
        with pytest.raises(OSError) as ours:
            faultless.save(path, array)
        assert type(ours.value) is theirs.type and ours.value.errno == theirs.value.errno, name
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


def test_a_disk_that_is_full_is_pythons_error(tmp_path, blocks):
    snapshot = faultless.snapshot(numbers((1024, 1024), **blocks))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    saving = faultless.save(tmp_path / "state.npy", snapshot, rate=16 << 20, wait=False)
    try:
        # Before its second step is due.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        with pytest.raises(OSError, match="large"):
            faultless.save(tmp_path / "other.npy", snapshot)
        for _ in range(2):
            with pytest.raises(OSError) as raised:
                saving.wait()
            assert type(raised.value) is OSError and raised.value.errno == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("side", [10, 1024])
def test_a_name_may_be_bytes(tmp_path, side, blocks):
    array = numbers((side, side), **blocks)
    for name in (b"state.npy", b"\xff\xfe", "é".encode()):
        path = os.fsencode(tmp_path) + b"/" + name
        faultless.save(path, array)
        assert (faultless.load(path) == array).all() and os.path.getsize(path) == array.nbytes + 4096
    assert sorted(os.listdir(os.fsencode(tmp_path))) == sorted([b"state.npy", b"\xff\xfe", "é".encode()])
    for wrong in (5, None, bytearray(b"name"), 1.5):
        with pytest.raises(TypeError):
            faultless.save(wrong, array)


@pytest.mark.parametrize("side", [10, 1024])
def test_a_rate_is_a_whole_number(tmp_path, side, blocks):
    array = numbers((side, side), **blocks)
    path = tmp_path / "state.npy"
    for rate in (1.5, 0.5, float("inf"), float("nan"), np.float64(1e12), "5", [5]):
        with pytest.raises(TypeError):
            faultless.save(path, array, rate=rate)
    assert os.listdir(tmp_path) == []
    for rate in (None, 1 << 50, (1 << 64) - 1, 1 << 64, 1 << 200, np.int64(1 << 62)):
        faultless.save(path, array, rate=rate)
        assert (np.load(path) == array).all()
        path.unlink()


@pytest.mark.parametrize("side", [10, 1024])
@pytest.mark.parametrize("rate", [0, -1, -(1 << 70)])
def test_a_rate_without_an_end_is_refused(tmp_path, side, rate):
    for wait in (True, False):
        with pytest.raises(ValueError, match="rate"):
            faultless.save(tmp_path / "state.npy", faultless.ones((side, side)), rate=rate, wait=wait)
    assert os.listdir(tmp_path) == []


def test_a_save_that_is_interrupted_leaves_nothing(tmp_path, blocks, interrupted):
    array = numbers((1024, 1024), **blocks)
    interrupted(lambda: faultless.save(tmp_path / "state.npy", array, rate=1))  # For days.
    assert os.listdir(tmp_path) == []
    saving = faultless.save(tmp_path / "state.npy", array, rate=1, wait=False)
    interrupted(saving.wait)
    assert not saving.done
    saving.cancel()
    assert os.listdir(tmp_path) == []


def test_a_save_of_numpys_array_is_interrupted(tmp_path, interrupted):
    snapshot = faultless.snapshot(np.zeros(1 << 30, "u1"))
    interrupted(lambda: faultless.save(tmp_path / "state.npy", snapshot))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("side", [10, 1024])
def test_whatever_a_killed_process_left_is_in_nobodys_way(tmp_path, side, blocks):
    array = numbers((side, side), **blocks)
    path = tmp_path / "state.npy"
    left = [tmp_path / f"state.npy.partial-{os.getpid()}{number}" for number in ("", "-0", "-1", "-2")]
    for file in left:
        file.write_bytes(b"left")
    faultless.save(path, array)
    assert (np.load(path) == array).all()
    assert sorted(tmp_path.iterdir()) == sorted([path, *left])
    with pytest.raises(OSError):
        faultless.save("/dev/null", array)
    with pytest.raises(FileNotFoundError):
        faultless.save(tmp_path / "no" / "state.npy", array)


def test_a_file_is_opened_lazily_and_may_change(tmp_path, blocks):
    path = tmp_path / "state.npy"
    faultless.save(path, numbers((1024, 1024), **blocks))
    array = faultless.load(path, "r+")
    array[5, 6] = -1
    array.flush()
    assert np.load(path)[5, 6] == -1
    copy = faultless.load(path, "c")
    copy[...] = 0
    assert np.load(path)[5, 6] == -1


@pytest.mark.parametrize("mode", ["w+", "w", "x", "a", "", "write", "readonly", None, 5, ["r"]])
def test_a_mode_that_there_is_not_leaves_the_file(tmp_path, mode):
    path = tmp_path / "state.npy"
    np.save(path, np.arange(1000))
    before = path.read_bytes()
    for name in (path, tmp_path / "no"):
        with pytest.raises(ValueError, match="mode"):
            faultless.load(name, mode)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["state.npy"]


def test_the_example_goes_on_where_it_was_saved(tmp_path, blocks):
    example = pathlib.Path(__file__).parents[1] / "examples" / "checkpoint.py"
    path = tmp_path / "state.npy"
    begun = 0
    for _ in range(2):
        command = [sys.executable, example, path, "--mib", "64", "--seconds", "2", "--every", "0.2"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert f"begins at round {begun}\n" in said
        state = np.load(path)
        begun = int(state[0, 0, 0])
        # The state of one round: each plane was added to as often as its turn came.
        turns = [len(range(plane % 16, begun, 16)) for plane in range(1, len(state))]
        assert begun > 0 and (state[1:] == np.reshape(turns, (-1, 1, 1))).all(), said


@pytest.mark.parametrize("other", [[1, 2], 3, None, "x", memoryview(b"abc")], ids=repr)
def test_what_is_no_array_is_refused(tmp_path, other):
    for take in (faultless.snapshot, lambda what: faultless.save(tmp_path / "a.npy", what)):
        with pytest.raises(TypeError, match="an array of NumPy's"):
            take(other)
    assert os.listdir(tmp_path) == []


def test_a_mask_is_not_lost(tmp_path):
    masked = np.ma.masked_array(np.arange(3.0), mask=[0, 1, 0])
    with pytest.raises(TypeError, match="mask"):
        faultless.save(tmp_path / "a.npy", masked)
    assert os.listdir(tmp_path) == []
    faultless.save(tmp_path / "a.npy", masked.data)
    assert np.array_equal(np.load(tmp_path / "a.npy"), masked.data)


def test_a_snapshot_of_a_file_keeps_its_moment(tmp_path):
    try:
        array = faultless.memmap(tmp_path / "a", "float64", "w+", shape=(1000, 1000), lazy=True, snapshots=True)
    except OSError as error:
        pytest.skip(f"no snapshots of lazy mappings: {error}")
    array[...] = 3
    taken, part = array.snapshot(), faultless.snapshot(array[500:600])
    array[500] = 7
    array.flush()
    assert (taken.array() == 3).all() and (part.array() == 3).all() and part.shape == (100, 1000)
    faultless.save(tmp_path / "a.npy", taken)
    assert (np.load(tmp_path / "a.npy") == 3).all()


def test_a_memmap_without_snapshots_is_copied(tmp_path):
    array = faultless.memmap(tmp_path / "a", "u1", "w+", shape=5 << 20)
    array[:] = 1
    taken = faultless.snapshot(array)
    array[:] = 2
    assert (taken.array() == 1).all()
    with pytest.raises(ValueError, match="lazy=True"):
        faultless.memmap(tmp_path / "a", mode="r", snapshots=True)
