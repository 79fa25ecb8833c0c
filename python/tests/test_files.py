"""Files and arrays of them: as numpy.memmap, and with the bytes that a plain file has."""

import contextlib
import faulthandler
import importlib.util
import itertools
import mmap
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import faultless

numpy = pytest.importorskip("numpy")

MIB = 1 << 20


def run(program, *args):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *map(str, args)], capture_output=True, text=True, timeout=100)
    return done


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_parts_that_no_file_has_are_numpys_errors(path):
    def error(make, mode, *args):
        path.write_bytes(bytes(10_000))
        with pytest.raises((ValueError, OverflowError)) as caught:
            make(path, dtype, mode, *args)
        return caught.type

    shapes = [None, (-2, 3), (-2, -3), (0, -1), (-1000, 4), (2, -100_000), (1 << 62, 4), (-(1 << 62), 4), 3]
    for dtype, mode, offset, shape in itertools.product(("u1", "f8"), ("r", "c", "r+", "w+"), (0, 8, -8, -5000, 4096, 20_000), shapes):
        bad = offset < 0 or shape is None and offset > 10_000 or shape not in (None, 3)
        if bad and not (mode == "w+" and shape is None):
            what = mode, offset, shape, dtype
            assert error(faultless.memmap, mode, offset, shape) is error(numpy.memmap, mode, offset, shape), what


def test_one_negative_extent_is_an_error(path):
    """NumPy has that, or the number of elements in a mapping that has another length than the array: an accident."""

    def outcome(make, *args):
        path.write_bytes(bytes(10_000))
        try:
            return len(make(path, *args))
        except (ValueError, OverflowError) as error:
            return type(error)

    for args in itertools.product(("u1", "f8"), ("r", "c", "r+", "w+"), (0, 8, 4096, 5000, 8191, 20_000), (-1, (-1,), [-1])):
        theirs, ours = outcome(numpy.memmap, *args), outcome(faultless.memmap, *args)
        if isinstance(theirs, int):
            assert ours in (ValueError, OverflowError) and path.read_bytes() == bytes(10_000), args
        else:
            assert ours is theirs, args


def test_a_truth_value_is_no_extent_of_many(path):
    path.write_bytes(bytes(100))
    for make in (numpy.memmap, faultless.memmap):
        assert make(path, shape=True).shape == (1,)
        assert make(path, shape=iter((2, 5))).shape == (2, 5)
        for shape in ((True, 5), [2, False], (True,)):
            with pytest.raises(TypeError, match="integer"):
                make(path, mode="r", shape=shape)


@pytest.mark.parametrize("offset,shape", [(0, None), (0, 10), (0, (3, 4)), (0, 0), (1, 10), (4096, 0), (4096, 10)])
def test_errors_of_an_empty_file_are_numpys(path, offset, shape):
    path.touch()

    def error(make, mode):
        with pytest.raises(ValueError) as caught:
            make(path, "u1", mode, offset, shape)
        return str(caught.value)

    for mode in ("r", "c"):
        assert error(faultless.memmap, mode) == error(numpy.memmap, mode)


def test_numpys_own_tests(tmp_path):
    """Those of numpy.memmap, with ours in its place."""
    found = importlib.util.find_spec("numpy._core.tests.test_memmap")
    if found is None:
        pytest.skip("NumPy's tests are not installed")
    text = pathlib.Path(found.origin).read_text()
    ours = """
import faultless
memmap = faultless.memmap
def test_that_it_is_ours(tmp_path):
    assert memmap(tmp_path / "data", mode="w+", shape=5).is_cached
"""
    (tmp_path / "test_numpy.py").write_text(text + ours)
    pytest_of = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", str(tmp_path / "test_numpy.py")]
    done = subprocess.run(pytest_of, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = int(done.stdout.rsplit(" passed", 1)[0].rsplit(None, 1)[-1])
    assert passed > 15, done.stdout


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("offset, shape", [(0, None), (8, None), (4104, (7, 11)), (5, 0), (3 * MIB + 8, 1000)])
def test_it_has_what_numpys_has(path, mode, offset, shape):
    path.write_bytes(numpy.random.default_rng(1).bytes(4 * MIB))
    expected = numpy.memmap(path, "float64", "r", offset, shape)
    array = faultless.memmap(path, "float64", mode, offset, shape, order="F")
    assert array.shape == expected.shape and array.dtype == expected.dtype
    assert array.tobytes(order="A") == expected.tobytes()
    assert array.flags.writeable == (mode != "r") and array.flags.f_contiguous
    assert (array.filename, array.offset, array.mode) == (path, offset, mode)
    assert array.is_cached == (mode != "c")
    assert array.ctypes.data % 4096 == offset % 4096


def test_what_is_written_is_in_the_file(path):
    array = faultless.memmap(path, "int32", "w+", shape=(MIB, 2))
    array[:, 1] = numpy.arange(MIB)
    again = faultless.memmap(str(path), "int32", "r")
    assert (again[1::2] == numpy.arange(MIB)).all(), "arrays of a file are the same memory"
    array.flush()
    assert (numpy.fromfile(path, "int32")[1::2] == numpy.arange(MIB)).all()
    array[5, 0] = 77
    view = array[5:6]
    del array, again
    assert view[0, 0] == 77 and isinstance(view, faultless.memmap) and view.filename == path
    del view
    assert numpy.fromfile(path, "int32")[10] == 77


def test_a_file_is_made_anew_while_an_array_of_it_lives(path):
    old = faultless.memmap(path, "uint8", "w+", shape=5000)
    old[:] = 3
    new = faultless.memmap(path, "uint8", "w+", shape=5000)
    assert not new.any() and not old.any()
    with pytest.raises(OSError):
        faultless.memmap(path, "uint8", "w+", shape=100)
    old[7] = 1
    assert new[7] == 1
    del old, new
    assert os.path.getsize(path) == 5000
    assert faultless.memmap(path, "uint8", "w+", shape=100).shape == (100,)
    assert path.read_bytes() == bytes(100)


def test_a_file_that_others_append_to(path):
    path.write_bytes(b"abc")
    first = faultless.memmap(path, mode="r")
    with open(path, "ab") as file:
        file.write(b"defgh" * 2000)
    second = faultless.memmap(path, mode="r+", shape=20000)
    assert second[:10003].tobytes() == b"abc" + b"defgh" * 2000 and not second[10003:].any()
    assert first.tobytes() == b"abc"


def test_mistakes_are_numpys(path):
    path.write_bytes(bytes(100))
    (path.parent / "empty").touch()
    for make in (numpy.memmap, faultless.memmap):
        for wrong in (
            dict(mode="x"),
            dict(mode="w+"),
            dict(mode="r", shape=101),
            dict(mode="r", dtype="float64"),
            dict(filename=path.parent / "empty", mode="r"),
            dict(mode="r", offset=101),
        ):
            with pytest.raises(ValueError):
                make(**{"filename": path, **wrong})
        for filename in (path.parent / "missing", path.parent):
            with pytest.raises(OSError):
                make(filename, mode="r")
        with open(path, "rb") as file, pytest.raises(PermissionError):
            make(file, mode="r+")
        with open(path, "ab") as file, pytest.raises(OSError):
            make(file, mode="r", shape=0)
        with open("/dev/zero", "rb") as file:
            assert not make(file, mode="r", shape=10).any()


def test_pickles_and_subclasses(path):
    class Other(faultless.memmap):
        pass

    array = faultless.memmap(path, "int16", "w+", shape=(3, 4))
    array[:] = 5
    copy = pickle.loads(pickle.dumps(array))
    assert type(copy) is faultless.memmap and (copy == 5).all() and copy.filename is None
    other = Other(path, "int16")
    assert type(other[1:]) is Other and type(other + 1) is Other and other[1:].offset == 0
    assert type(array + 1) is numpy.ndarray and type(array.sum()) is numpy.int64
    assert isinstance(array.sum(axis=0), numpy.ndarray) and type(array[[0, 1]]) is numpy.ndarray


def test_what_is_too_large_is_mapped_by_the_kernel(path):
    file = open(path, "w+b")
    file.truncate(1 << 42)
    file.seek(1 << 41)
    file.write(b"far")
    file.flush()
    array = faultless.memmap(file, mode="r+")
    assert not array.is_cached and array[1 << 41 : (1 << 41) + 3].tobytes() == b"far"
    part = faultless.memmap(path, mode="r+", offset=1 << 41, shape=3)
    assert not part.is_cached, "both see the same bytes"
    part[0] = 1
    assert array[1 << 41] == 1
    del array, part
    assert faultless.memmap(path, mode="r", offset=1 << 41, shape=3).is_cached


@pytest.mark.parametrize("end", ["pass", "1 / 0", "import sys; sys.exit(3)"])
def test_the_end_of_a_program_writes_back(path, end):
    program = f"""
        import sys, faultless
        array = faultless.memmap(sys.argv[1], "uint8", "w+", shape=3 << 20)
        array[:] = 7
        keep = [array]; keep.append(keep)
        file = faultless.open(sys.argv[1] + ".2", "w+")
        file.write(0, b"bytes")
        {end}
    """
    done = run(program, path)
    assert ("Traceback" in done.stderr) == ("1 / 0" in end), done.stderr
    assert path.read_bytes() == b"\7" * (3 << 20)
    assert path.with_name("data.2").read_bytes() == b"bytes"


def child_reads(array, pipe):
    pipe.send(array.sum())
    pipe.close()


def child_writes(array):
    # It would say where.
    faulthandler.disable()
    array[0] = 5


def test_a_forked_child_reads_arrays_of_its_parent(path):
    array = faultless.memmap(path, "int64", "w+", shape=MIB)
    array[:] = numpy.arange(MIB)
    fork = multiprocessing.get_context("fork")
    for _ in range(2):
        here, there = fork.Pipe()
        child = fork.Process(target=child_reads, args=(array, there))
        child.start()
        assert here.recv() == MIB * (MIB - 1) // 2
        child.join()
        assert child.exitcode == 0
    child = fork.Process(target=child_writes, args=(array,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGSEGV, "a write in a child would be lost"
    assert array[0] == 0
    array.flush()
    assert (numpy.fromfile(path, "int64") == array).all()


def test_files(path):
    with faultless.open(path, "w+") as file:
        assert file.write(10, numpy.arange(3 * MIB // 4, dtype="int32")) == 3 * MIB
        assert len(file) == 3 * MIB + 10 and file.read(0, 10) == bytes(10)
        buffer = numpy.zeros((5, 7), "uint8")
        assert file.readinto(10, buffer) == 35
        assert buffer.tobytes() == numpy.arange(9, dtype="int32").tobytes()[:35]
        for wrong in (b"read-only", numpy.zeros((4, 4))[::2, ::2]):
            with pytest.raises((BufferError, ValueError, TypeError)):
                file.readinto(0, wrong)
        assert file.prefetch([(5, MIB), (2 * MIB, 3 * MIB)]) == 2 * MIB - 5
        mapping = file.map(10, 14, writable=True)
        numpy.frombuffer(mapping, "uint8")[:] = 9
        assert file.read(10, 4) == b"\x09" * 4
        file.sync(0, 100)
        assert path.read_bytes()[8:14] == b"\0\0" + b"\x09" * 4
        with pytest.raises(OSError):
            file.truncate(12)
        file.truncate(20)
        file.punch_hole(11, 13)
        assert memoryview(mapping).tobytes() == b"\x09\0\0\x09"
        assert memoryview(file.map()).readonly and len(file.map(5)) == 15
        assert file.drop() == 0, "it is mapped"
        for wrong in (lambda: file.map(0, 21), lambda: file.prefetch([(0, 21)]), lambda: file.punch_hole(0, 21)):
            with pytest.raises(OSError):
                wrong()
        with pytest.raises(ValueError):
            file.read(-1, 5)
    assert file.closed and path.stat().st_size == 20
    with pytest.raises(ValueError):
        file.read(0, 1)
    memoryview(mapping)[0] = 1
    mapping.flush()
    assert path.read_bytes()[10] == 1
    with faultless.open(path) as file:
        assert file.read(0, 100) == path.read_bytes()
        for wrong in (lambda: file.write(0, b"x"), lambda: file.map(writable=True), file.sync, lambda: file.truncate(1)):
            with pytest.raises(OSError):
                wrong()
    for mode, error in (("w", ValueError), ("x+", FileExistsError)):
        with pytest.raises(error):
            faultless.open(path, mode)
    for wrong in (lambda: faultless.open(path.parent), lambda: faultless.File(-1), lambda: faultless.File(99999)):
        with pytest.raises(OSError):
            wrong()


def test_threads_at_one_file(path):
    array = faultless.memmap(path, "int64", "w+", shape=(4, MIB // 4))
    file = faultless.open(path, "r+")

    def work(row):
        for value in range(20):
            array[row] = value
            data = file.read(row * 2 * MIB, 2 * MIB)
            assert (numpy.frombuffer(data, "int64") == value).all()
            faultless.memmap(path, "int64", "r")[row * MIB // 4]
            array.flush()

    ended = []
    threads = [threading.Thread(target=lambda row=row: work(row) or ended.append(row)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 4, "one has failed"
    assert (array == 19).all()


def test_a_mapping_of_the_kernels_has_the_rest_of_its_interface(path):
    array = faultless.memmap(path, mode="w+", shape=10)
    assert not isinstance(array._mmap, mmap.mmap) and len(array._mmap) == 10
    assert "10 bytes" in repr(array._mmap) and "10 bytes" in repr(faultless.open(path))


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_an_array_that_is_larger_than_the_budget(path, mode):
    """Its pages come when they are touched, and go again; changes are in the file after a flush."""
    program = """
        import os
        import sys
        os.environ["FAULTLESS_BUDGET"] = "16M"
        import numpy
        import faultless

        path, mode = sys.argv[1:]
        expected = numpy.random.default_rng(3).integers(0, 1 << 60, 8 << 20)
        expected.tofile(path)
        array = faultless.memmap(path, "int64", mode, lazy=True)
        if not array.is_cached:
            sys.exit("no userfaultfd that serves system calls")
        assert array._mmap.is_lazy and len(array) == len(expected)
        places = numpy.random.default_rng(4).integers(0, len(expected), 200)
        assert (array[places] == expected[places]).all()
        assert array.sum() == expected.sum() and (array[::-4096] == expected[::-4096]).all()
        if mode == "r+":
            array[places] += 1
            expected[numpy.unique(places)] += 1
            array.flush()
            assert (numpy.fromfile(path, "int64") == expected).all()
        if mode == "c":
            array[places] += 1
            array.flush()
            assert (numpy.fromfile(path, "int64") == expected).all()
            assert (faultless.memmap(path, "int64", "r", lazy=True)[places] == expected[places]).all()
            expected[numpy.unique(places)] += 1
            assert array.sum() == expected.sum()
        # A system call on memory that was not touched.
        faultless.open(path).drop()
        with open(path + ".copy", "wb") as copy:
            array.tofile(copy)
        assert (numpy.fromfile(path + ".copy", "int64") == expected).all()
        del array
    """
    done = run(program, path, mode)
    if "no userfaultfd" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["r", "r+", "w+", "c"])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
@pytest.mark.parametrize("as_file", [False, True])
def test_devices_are_as_with_numpy(mode, device, as_file):
    def seen(make, **named):
        try:
            with contextlib.ExitStack() as files:
                file = files.enter_context(open(device, "r+b")) if as_file else device
                array = make(file, numpy.uint16, mode, **named)
                if mode != "r":
                    array[...] = 3
                    array.flush()
                return array.shape, array.mode, array.filename, array.offset, array.tolist()
        except (OSError, ValueError) as error:
            return type(error), getattr(error, "errno", None)

    for shape, offset in [(None, 0), *itertools.product([0, 5, (2, 3)], [0, 16])]:
        named = {"shape": shape, "offset": offset}
        assert seen(faultless.memmap, **named) == seen(numpy.memmap, **named), named
    if device == "/dev/zero":
        made = seen(faultless.memmap, shape=3)
        assert made[-1] == ([0] * 3 if mode == "r" else [3] * 3), made


def test_a_number_is_no_name(tmp_path):
    path = tmp_path / "numbers.npy"
    numpy.save(path, numpy.arange(1000))
    fd = os.open(path, os.O_RDWR)
    for number in (fd, True, False, numpy.int64(fd), 1.0, None):
        for make in (numpy.memmap, faultless.memmap, faultless.load, faultless.open, lambda path: faultless.save(path, numpy.ones(3))):
            with pytest.raises(TypeError):
                make(number)
    for number in (0, 1, 2, fd):
        os.fstat(number)
    os.close(fd)
    assert numpy.load(path).sum() == 499500
