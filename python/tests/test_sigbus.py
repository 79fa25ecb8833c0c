"""SIGBUS has one handler: who else wants it is told at once, and everything works that does not."""

import signal
import subprocess
import sys

import pytest

import faultless

PROLOGUE = """
import faulthandler, gc, signal, sys, warnings
import numpy as np
import faultless

def taken(function, *args):
    try:
        function(*args)
    except faultless.RegionError as error:
        assert "SIGBUS" in str(error)
        return True
    return False

def handler(*_):
    print("handled")
"""


@pytest.fixture(autouse=True)
def signals():
    try:
        faultless.Region(1, delivery="signal")
    except faultless.RegionError as error:
        pytest.skip(str(error))


def run(code):
    """What a program of its own prints."""
    done = subprocess.run([sys.executable, "-c", PROLOGUE + code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


MAKE = {
    "region": "r = faultless.Region(8 << 20, delivery='signal'); a = np.frombuffer(r, np.uint8)",
    "array": "a = faultless.zeros(8 << 20, np.uint8, delivery='signal')",
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_who_takes_it_is_told(make):
    code = f"""
{make}
assert taken(faulthandler.enable)
assert taken(signal.signal, signal.SIGBUS, handler) and taken(signal.signal, signal.SIGBUS, signal.SIG_DFL)
assert taken(signal.siginterrupt, signal.SIGBUS, True)
assert taken(signal.pthread_sigmask, signal.SIG_BLOCK, [signal.SIGBUS])
assert taken(signal.pthread_sigmask, signal.SIG_SETMASK, signal.valid_signals())
a[:] = 1
assert a.sum() == 8 << 20
assert not taken(signal.signal, signal.SIGUSR1, handler)
assert not taken(signal.pthread_sigmask, signal.SIG_UNBLOCK, [signal.SIGBUS])
faulthandler.disable()
a[:] = 2
del a
r = None
gc.collect()
assert not taken(faulthandler.enable)
"""
    run(code)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_it_may_be_taken_between_regions(make):
    """As the error says: after the last of them is gone. The next one comes before what is there then."""
    code = f"""
for i in range(5):
    {make}
    a[:] = 1
    assert taken(signal.signal, signal.SIGBUS, handler) and taken(faulthandler.enable)
    assert a.sum() == 8 << 20
    del a
    r = None
    gc.collect()
    signal.signal(signal.SIGBUS, handler)
    signal.raise_signal(signal.SIGBUS)
    {make}
    a[:] = 1
    signal.raise_signal(signal.SIGBUS)
    del a
    r = None
    gc.collect()
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
faulthandler.enable()
{make}
a[:] = 1
print(a.sum(), flush=True)
signal.raise_signal(signal.SIGBUS)
"""
    done = subprocess.run([sys.executable, "-c", PROLOGUE + code], capture_output=True, text=True, timeout=100)
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert done.stdout == "handled\n" * 10 + f"{8 << 20}\n"
    assert done.stderr.count("Fatal Python error: Bus error") == 1


def test_what_was_there_before_stays():
    code = """
faulthandler.enable()
a = faultless.zeros(8 << 20, np.uint8, delivery="signal")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert faulthandler.disable() and faulthandler.is_enabled() and "SIGBUS" in str(said[0].message)
assert not taken(faulthandler.enable)
a[:] = 1
print(a.sum())
"""
    assert run(code) == f"{8 << 20}\n"
    code = """
signal.signal(signal.SIGBUS, handler)
a = faultless.zeros(8 << 20, np.uint8, delivery="signal")
a[:] = 1
signal.raise_signal(signal.SIGBUS)
assert a.sum() == 8 << 20
"""
    assert run(code) == "handled\n"


def test_other_modes_leave_it_alone():
    code = """
a = faultless.zeros(8 << 20, np.uint8)
assert not taken(faulthandler.enable) and not taken(signal.signal, signal.SIGBUS, handler)
a[:] = 1
signal.raise_signal(signal.SIGBUS)
assert a.sum() == 8 << 20
"""
    assert run(code) == "handled\n"


def test_a_mask_may_be_an_iterator():
    """It is looked at, and has to be there for the call, too."""
    array = faultless.zeros(8 << 20, "u1", delivery="signal")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, iter([signal.SIGUSR1]))
    try:
        assert signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        with pytest.raises(faultless.RegionError):
            signal.pthread_sigmask(signal.SIG_BLOCK, iter([signal.SIGBUS]))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert array[5] == 0


WAITS = """
import os, signal
# Its threads would take them.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import faultless
array = faultless.zeros(8 << 20, "u1")
array[::4096] = 1
work = faultless.reserve(64 << 20)
signals = {getattr(signal, name) for name in ("SIGTRAP", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTERM", "SIGUSR1")}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
for number in signals:
    os.kill(os.getpid(), number)
    assert signal.sigwait({number}) == number
"""


def test_signals_that_the_program_waits_for_come_to_no_thread_of_the_package():
    made = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True)
    assert made.returncode == 0, (made.returncode, made.stderr)
