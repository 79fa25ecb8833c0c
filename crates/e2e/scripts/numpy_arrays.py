"""FFT, sort, products and temporaries; sums are rounded, because the order of additions follows the alignment."""

import numpy as np

rng = np.random.default_rng(1)
for round in range(6):
    a = rng.integers(0, 1 << 40, 3_000_000)
    a.sort()
    print("sort", int(a[::1000].sum()), bool((a[1:] >= a[:-1]).all()))
    z = np.zeros((2000, 2000))
    print("zeros", int(np.count_nonzero(z)))
    z += np.arange(2000)
    print("sum", int(z.sum()))
    w = np.fft.ifft(np.fft.fft(z.ravel())).real
    print("fft", bool(np.allclose(w, z.ravel(), atol=1e-6)))
    t = (z * 2 + 1) - z - 1
    print("temporaries", bool((t == z).all()))
    m = z[:400, :400] @ np.eye(400)
    print("product", bool((m == z[:400, :400]).all()))
    b = np.concatenate([a] * 4)
    b.resize(b.size * 2)
    print("resize", int(b.sum()), int(b[b.size // 2 :].max()))
