"""multiprocessing by the start method given: children use large arrays of their own and of their parent."""

import multiprocessing
import sys

import numpy as np

shared = np.arange(4_000_000)


def work(i):
    own = np.zeros(3_000_000, dtype=np.int64)
    assert own.sum() == 0
    own += i
    shared[i] = -1
    return int(own.sum()), int(shared.sum())


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    scratch = [np.ones(3_000_000) for _ in range(4)]
    del scratch
    with context.Pool(2, maxtasksperchild=1) as pool:
        for result in pool.map(work, range(8), chunksize=1):
            print(*result)
    print(int(shared.sum()))
