"""What an application does before it does anything: it brings its libraries up. If told how, another of its threads is
at work meanwhile: so many times it maps, writes and unmaps memory, by mmap itself or for an array."""
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


def work(once, size, rounds):
    """The same work each time, however long the application takes to be up."""
    for _ in range(rounds):
        once(size)
        begun.set()


begun = threading.Event()
worker = None
if len(sys.argv) > 1:
    once = {"mmap": by_mmap, "array": by_array}[sys.argv[1]]
    worker = threading.Thread(target=work, args=(once, int(sys.argv[2]), int(sys.argv[3])), daemon=True)
    worker.start()
    begun.wait()

import sklearn.ensemble
import sklearn.linear_model

if worker:
    worker.join()
print(numpy.ones(3).sum(), sklearn.linear_model.LinearRegression.__name__, sklearn.ensemble.__name__)
