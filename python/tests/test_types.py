"""The types of everything public are what the stubs say, and those of programs are right."""

import faulthandler
import subprocess
import sys

import pytest

pytest.importorskip("mypy")


def mypy(*args):
    # It takes long on a busy machine.
    faulthandler.cancel_dump_traceback_later()
    done = subprocess.run([sys.executable, "-m", *args], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_are_what_the_package_is(tmp_path):
    # Python has these as names from 3.12 on.
    buffers = [f"faultless._faultless.{name}" for name in ("Block.__buffer__", "Mapping.__buffer__", "Region.__buffer__", "Region.__release_buffer__")]
    (tmp_path / "allowed").write_text("\n".join(buffers))
    allowed = ["--allowlist", str(tmp_path / "allowed"), "--ignore-unused-allowlist"]
    mypy("mypy.stubtest", "faultless", "--mypy-config-file", configuration(tmp_path), *allowed)


def configuration(tmp_path):
    path = tmp_path / "mypy.ini"
    path.write_text(f"[mypy]\nstrict = True\ncache_dir = {tmp_path}/cache\n")
    return str(path)


def test_types_of_a_program(tmp_path):
    program = tmp_path / "program.py"
    # NumPy's types know buffers of other packages from Python 3.12 on.
    version = f"3.{max(sys.version_info.minor, 12)}"
    program.write_text(
        """
import numpy as np
import faultless

with faultless.Region(np.int64(4096), window=(4096, 8192)) as region:
    a = np.frombuffer(region, np.uint8)
    view = memoryview(region)
    work: faultless.Background = region.populate_in_background(0, 4096)
b = faultless.zeros(np.int64(4))
c = faultless.zeros((np.int64(4), 5), np.uint8, order="F", delivery="signal", handlers=2)
d = faultless.full_like(c, 3, shape=[2, 3]) + faultless.ones(3) + faultless.empty_like(b, "f4")
e: str = faultless.__version__
f = np.frombuffer(faultless.Block(1), np.uint8)
m: faultless.memmap = faultless.memmap("data", np.float64, mode="r", offset=8, shape=(np.int64(3), 4))
with faultless.open("data", "r+", huge_pages=False) as file:
    g: int = file.write(0, b"x") + file.readinto(0, bytearray(3)) + file.prefetch([(0, 1), (5, np.int64(6))])
    h = memoryview(file.map(0, 5, writable=True))
faultless.save(b"state.npy", b, rate=np.int64(5))
s: faultless.Background | None = faultless.save("state.npy", faultless.snapshot(b), wait=False)
l: faultless.memmap = faultless.load(b"state.npy")
faultless.open("data", "w")  # type: ignore[arg-type]
faultless.zeros(3, delivery="pigeon")  # type: ignore[arg-type]
faultless.zeros(3, wings=2)  # type: ignore[call-arg]
"""
    )
    mypy("mypy", "--config-file", configuration(tmp_path), "--python-version", version, str(program))


def test_the_package_itself(tmp_path):
    mypy("mypy", "--config-file", configuration(tmp_path), "-p", "faultless")
