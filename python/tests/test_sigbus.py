"""SIGBUS has one handler: who else wants it is told at once, and everything works that does not."""

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
try:
    faultless.Region(1, delivery="signal")
except faultless.RegionError as error:
    print(error)
"""
    assert "SIGBUS" in run(code)


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
