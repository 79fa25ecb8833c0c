"""What an application does before it does anything: it brings its libraries up. If told how, another of its threads is
at work meanwhile: it maps, writes and unmaps memory again and again, by mmap itself or for arrays."""
import mmap
import sys
import threading

import numpy


def by_mmap(size):
    """A private mapping; the array of it is gone before it is unmapped."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        numpy.frombuffer(memory, dtype="u1")[:] = 1


def by_array(size):
    """Larger arrays than the C library keeps are mapped and unmapped one by one."""
    numpy.ones(size, dtype="u1")


def work(once, size):
    """At least once, until the application is up."""
    once(size)
    begun.set()
    while not up.is_set():
        once(size)


begun, up = threading.Event(), threading.Event()
worker = None
if len(sys.argv) > 1:
    once = {"mmap": by_mmap, "array": by_array}[sys.argv[1]]
    worker = threading.Thread(target=work, args=(once, int(sys.argv[2])), daemon=True)
    worker.start()
    begun.wait()

import sklearn.ensemble
import sklearn.linear_model

if worker:
    up.set()
    worker.join()
print(numpy.ones(3).sum(), sklearn.linear_model.LinearRegression.__name__, sklearn.ensemble.__name__)
