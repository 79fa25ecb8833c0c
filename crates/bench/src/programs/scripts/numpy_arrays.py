"""Transforms, sorts and large temporaries in a loop."""
import sys

import numpy as np

rounds = int(sys.argv[1])
rng = np.random.default_rng(1)
signal = rng.random(1 << 20)
keys = rng.integers(0, 1 << 40, 1 << 19)
total = 0.0
for step in range(rounds):
    spectrum = np.fft.rfft(signal + step)
    back = np.fft.irfft(spectrum * np.conj(spectrum))
    ordered = np.sort(keys ^ step)
    grown = np.zeros(1 << 23)
    grown[:: 512] = back[: 1 << 14].real
    mixed = signal * 2.0 + signal - back / signal.size
    total += float(back.sum()) + float(mixed.sum()) + float(grown.sum()) + float(ordered[1000])
# Six digits: how a sum is split depends on where the array lies.
print(f"{total:.5e}")
