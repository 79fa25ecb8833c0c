"""Computes on a state, and saves it once a second meanwhile. Run again, it goes on where the last file left it.

    python checkpoint.py state.npy --mib 2048 --seconds 30
"""

import argparse
import os
import time

import numpy

import faultless

SIDE = 1024  # cells of a row


def load_or_begin(path: str, mib: int) -> tuple[int, numpy.ndarray]:
    """How many rounds were computed, and the state: planes of cells, the first of which counts rounds."""
    planes = mib * (1 << 20) // (SIDE * SIDE * 8)
    state = faultless.zeros((planes, SIDE, SIDE))
    if os.path.exists(path):
        # Pages come as they are copied: the file may be as large as memory.
        state[...] = faultless.load(path)
    return int(state[0, 0, 0]), state


def compute(state: numpy.ndarray, round: int) -> None:
    """One round: a few planes change, as a simulation has it that works on a part at a time."""
    for plane in range(round % 16, len(state), 16):
        state[plane] += 1.0
    state[0, 0, 0] = round + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--mib", type=int, default=2048, help="size of the state")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to compute")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two snapshots")
    parser.add_argument("--rate", type=int, help="bytes a second to write, at most")
    args = parser.parse_args()

    round, state = load_or_begin(args.path, args.mib)
    print(f"begins at round {round}")
    end = time.monotonic() + args.seconds
    saving, due, saved, longest = None, time.monotonic(), 0, 0.0
    while time.monotonic() < end:
        if time.monotonic() >= due and (saving is None or saving.done):
            if saving is not None:
                saving.wait()  # raises what went wrong
            began = time.monotonic()
            snapshot = faultless.snapshot(state)
            longest = max(longest, time.monotonic() - began)
            saving = faultless.save(args.path, snapshot, rate=args.rate, wait=False)
            del snapshot  # the copies go when the file is written
            due, saved = time.monotonic() + args.every, saved + 1
        compute(state, round)
        round += 1
    if saving is not None:
        saving.wait()
    print(f"ends at round {round}, with {saved} files written; the longest snapshot took {longest * 1000:.2f} ms")


if __name__ == "__main__":
    main()
