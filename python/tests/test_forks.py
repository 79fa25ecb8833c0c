"""A fork at any moment: its child has arrays and regions, and nothing waits for ever."""

import os
import signal
import subprocess
import sys

import faultless

SECONDS = 10


def child(function):
    """The status of a forked child in which the function is called."""
    process = os.fork()
    if process == 0:
        signal.alarm(SECONDS)
        try:
            function()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitpid(process, 0)[1]


# A process of its own, because it is about the first array of one.
FIRST = """
import os, signal, sys, threading
import faultless
# An import beside a fork is Python's own affair.
import numpy

def use():
    for delivery in ("best", "kernel", "direct", "thread", "signal"):
        try:
            array = faultless.zeros(8 << 20, "u1", delivery=delivery)
            region = faultless.Region(1 << 20, delivery=delivery)
        except faultless.RegionError as error:
            if "descriptor is left" in str(error):
                raise
            continue
        array[::4096] = 1
        with memoryview(region) as view:
            view[5] = 7
        assert int(array.sum()) == 2048
        region.protect(0, 4096, "r")
        region.close()

started = threading.Event()
thread = threading.Thread(target=lambda: (started.set(), use()))
thread.start()
started.wait()
for _ in range(8):
    process = os.fork()
    if process == 0:
        signal.alarm(10)
        use()
        os._exit(0)
    status = os.waitpid(process, 0)[1]
    if status:
        os._exit(1)
thread.join()
os._exit(0)
"""


def test_forks_beside_the_first_array():
    for _ in range(4):
        made = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr


# The fork has to come while the other thread is in there: many changes, and a child for each try.
PROTECT = """
import os, signal, threading
import faultless

region = faultless.Region(256 << 20)
ends = False

def protect():
    while not ends:
        region.protect(0, 256 << 20, "r")
        region.protect(0, 256 << 20, "rw")

thread = threading.Thread(target=protect)
thread.start()
wrong = 0
for _ in range(100):
    process = os.fork()
    if process == 0:
        signal.alarm(10)
        try:
            memoryview(region)
        except faultless.RegionError:
            pass
        region.close()
        os._exit(0 if region.closed else 1)
    wrong = os.waitpid(process, 0)[1]
    if wrong:
        break
ends = True
thread.join()
os._exit(wrong != 0)
"""


def test_forks_beside_protect():
    made = subprocess.run([sys.executable, "-c", PROTECT], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_children_have_their_parents_arrays_and_their_own(delivery):
    array = faultless.zeros(8 << 20, "u1", delivery=delivery)
    array[:4096] = 5
    region = faultless.Region(8 << 20, delivery=delivery)
    view = memoryview(region)
    view[0] = 9

    def use():
        array[8192] = 7
        assert int(array.sum()) == 4096 * 5 + 7 and view[0] == 9 and view[-1] == 0
        assert os.write(os.open("/dev/null", os.O_WRONLY), array) == array.nbytes
        own = faultless.zeros(8 << 20, "u1", delivery=delivery)
        own[:] = 1
        assert int(own.sum()) == own.nbytes and int(array.copy()[8192]) == 7
        assert child(lambda: int(own.sum()) == own.nbytes or os._exit(1)) == 0

    assert child(use) == 0
    assert array[8192] == 0


# Forks of several threads, with a hook of another module in between: each child reads the file's array.
TOGETHER = """
import os, signal, sys, tempfile, threading, time
os.register_at_fork(before=lambda: time.sleep(0.002))
import faultless

file = tempfile.NamedTemporaryFile()
file.truncate(8 << 20)
array = faultless.memmap(file.name, "u1", "r+")
array[:] = 7
failed = []

def forks():
    for _ in range(20):
        process = os.fork()
        if process == 0:
            signal.alarm(10)
            os._exit(0 if array[0] == 7 and array[-1] == 7 else 3)
        status = os.waitpid(process, 0)[1]
        if status:
            failed.append(status)

threads = [threading.Thread(target=forks) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(f"children failed: {failed}" if failed else 0)
"""


def test_threads_fork_together():
    subprocess.run([sys.executable, "-W", "ignore", "-c", TOGETHER], check=True, timeout=100)
