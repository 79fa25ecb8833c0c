"""Sorts an array that is larger than the memory that it may have, part by part, and checks it.

    python swap.py --mib 512 --memory 128

What does not fit goes to a file without a name in the directory for temporary files (TMPDIR).
"""

import argparse
import time

import numpy

import faultless


def resident() -> float:
    """Memory of this process, in MiB."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=512, help="size of the array")
    parser.add_argument("--memory", type=int, default=128, help="MiB of it that may be in memory, 4 at least")
    args = parser.parse_args()

    random = numpy.random.default_rng(1)
    random.integers(9)  # loads what it needs
    before = resident()
    numbers = faultless.zeros(args.mib * (1 << 20) // 8, dtype="uint64", swap=args.memory << 20)
    part = (1 << 20) // 8  # numbers of 1 MiB
    parts = [numbers[at : at + part] for at in range(0, len(numbers), part)]
    most, begun = 0.0, time.monotonic()
    for piece in parts:
        piece[:] = random.integers(1 << 40, size=part, dtype="uint64")
        most = max(most, resident())
    total = sum(int(piece.sum()) for piece in parts)
    for piece in parts:
        piece.sort()
        most = max(most, resident())
    is_sorted = all((piece[1:] >= piece[:-1]).all() for piece in parts)
    same = total == sum(int(piece.sum()) for piece in parts)
    print(f"sorted: {is_sorted}, the same numbers: {same}, {time.monotonic() - begun:.2f} s")
    print(f"memory at most: {most - before:.0f} MiB, beside an array of {args.mib} MiB")
    for name in ("swap_out", "swap_in", "swap_clean"):
        print(f"{name}: {faultless.counter(name) >> 20} MiB")


if __name__ == "__main__":
    main()
