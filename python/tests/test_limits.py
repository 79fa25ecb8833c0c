"""Limits of the process: an array comes where NumPy's would, or the error is NumPy's."""

import os
import subprocess
import sys

import numpy
import pytest

import faultless

# What is done in a process of its own, with a limit beyond what it has.
WITH_LIMIT = """
import os, resource, sys
import numpy as np
import faultless
faultless.zeros(1)

def has(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

name, extra = sys.argv[1], int(sys.argv[2])
if name == "NOFILE":
    limit = len(os.listdir("/proc/self/fd")) - 1 + extra
else:
    limit = {"AS": lambda: has("VmSize"), "DATA": lambda: has("VmData")}[name]() + (extra << 20)
resource.setrlimit(getattr(resource, "RLIMIT_" + name), (limit, limit))
"""
PLAIN = """
try:
    array = faultless.zeros(8 << 20, "u1")
except MemoryError as error:
    # As NumPy says it.
    assert "Unable to allocate 8.00 MiB" in str(error), error
else:
    array[:] = 1
    assert int(array.sum()) == array.nbytes
    assert os.write(os.open("/dev/null", os.O_WRONLY) if name != "NOFILE" else 1, array[:0]) == 0
    del array
"""
NUMPY_TOO = """
array = faultless.zeros(8 << 20, "u1")
array[:] = 1
assert int(np.ones(8 << 20, "u1").sum() + array.sum()) == 2 * array.nbytes
"""
AS_MANY = """
def fit(zeros):
    arrays = []
    try:
        while True:
            arrays.append(zeros(8 << 20, "u1"))
    except MemoryError:
        return len(arrays)

ours, theirs = fit(faultless.zeros), fit(np.zeros)
assert ours == theirs > 30, (ours, theirs)
"""
REGIONS = """
for delivery in ("best", "thread", "signal", "kernel", "direct"):
    for make in (faultless.Region, faultless.Block):
        try:
            memory = make(8 << 20, delivery=delivery)
        except (MemoryError, faultless.RegionError) as error:
            assert str(error)
        else:
            view = memoryview(memory)
            view[4096] = 1
            view.release()
"""


def run(program, name, extra):
    return subprocess.run([sys.executable, "-c", WITH_LIMIT + program, name, str(extra)], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["AS", "DATA"])
def test_a_lack_of_addresses_is_as_with_numpy(name):
    for extra in (0, 5, 12, 40):
        made = run(PLAIN, name, extra)
        assert made.returncode == 0, f"{extra} MiB: {made.stderr}"
    # Memory that is enough for both is shared by both.
    for extra in (40, 1500):
        made = run(NUMPY_TOO, name, extra)
        assert made.returncode == 0, f"{extra} MiB: {made.stderr}"


def test_as_many_arrays_fit_into_the_addresses_as_of_numpy():
    made = run(AS_MANY, "AS", 300)
    assert made.returncode == 0, made.stderr


def test_a_lack_of_descriptors_is_none():
    for extra in (0, 1, 3):
        made = run(PLAIN, "NOFILE", extra)
        assert made.returncode == 0, f"{extra}: {made.stderr}"


@pytest.mark.parametrize("name", ["AS", "DATA", "NOFILE"])
def test_regions_under_a_limit_are_errors_or_work(name):
    for extra in (0, 3, 9, 60):
        made = run(REGIONS, name, extra)
        assert made.returncode == 0, f"{extra}: {made.stderr}"


def test_more_than_the_machine_has_is_refused_as_by_numpy(delivery):
    """It is not granted: to fill it would end the process. So nothing here is filled, and nothing may be if it were granted."""
    if delivery == "direct":
        delivery = "best"
    count = os.sysconf("SC_PHYS_PAGES") * 4096
    while count < 1 << 45:
        try:
            numpy.empty(count)
        except MemoryError:
            break
        count *= 2
    else:
        pytest.skip("the kernel grants any size (vm.overcommit_memory)")
    small = numpy.zeros(3)
    for make in (
        lambda **options: faultless.zeros(count, **options),
        lambda **options: faultless.empty(count, **options),
        lambda **options: faultless.zeros_like(small, shape=count, **options),
        lambda **options: faultless.empty_like(small, shape=(2, count // 2), **options),
        lambda **options: faultless.Block(8 * count, **options),
        lambda **options: faultless.Region(8 * count, **options),
    ):
        with pytest.raises(MemoryError):
            make(delivery=delivery)
    with pytest.raises(MemoryError) as theirs:
        numpy.zeros(count)
    with pytest.raises(MemoryError) as ours:
        faultless.zeros(count)
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))
    # What fits is there as before.
    assert faultless.zeros(8 << 20, "u1", delivery=delivery).base.delivery


def test_a_read_that_is_larger_than_memory(tmp_path):
    path = tmp_path / "holes"
    with open(path, "wb") as plain:
        plain.truncate(1 << 40)
    with faultless.open(path) as file, pytest.raises(MemoryError):
        file.read(0, 1 << 40)


INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def use():
    import faultless
    assert len(faultless.Region(4096)) == 4096

if sys.argv[1] == "before":
    use()
interpreter = interpreters.create()
interpreters.run_string(interpreter, f'''
import sys
sys.path[:] = {sys.path!r}
for _ in range(2):
    try:
        import faultless
    except ImportError as error:
        print("refused:", error)
    else:
        print("imported")
''')
if sys.argv[1] == "after":
    use()
"""


@pytest.mark.parametrize("main", ["before", "after", "never"])
def test_another_interpreter_has_no_part_in_it(main):
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    # It lives until the program ends, which is to end.
    made = subprocess.run([sys.executable, "-c", INTERPRETERS, main], capture_output=True, text=True, timeout=30)
    assert made.returncode == 0, made.stderr
    said = made.stdout.splitlines()
    assert len(said) == 2 and all(line.startswith("refused: ") and "interpreter" in line for line in said), said
