"""What Python and NumPy do by system calls, on memory that was not touched yet."""

import io
import os
import socket
import tempfile
import threading

import numpy as np
import pytest

import faultless

BYTES = 5 << 20
MAKERS = {
    "zeros": lambda **options: faultless.zeros(BYTES, np.uint8, **options),
    "empty": lambda **options: faultless.empty(BYTES, np.uint8, **options),
    "two": lambda **options: faultless.zeros((BYTES >> 10, 1 << 10), np.uint8, "F", **options),
    "zeros_like": lambda **options: faultless.zeros_like(np.ones(BYTES, np.uint8), **options),
    "full": lambda **options: faultless.full(BYTES, 7, np.uint8, **options),
    "region": lambda **options: np.frombuffer(faultless.Region(BYTES, **options), np.uint8),
    "small": lambda **options: faultless.zeros(5000, np.uint8, **options),
    "list": lambda **options: faultless.zeros(BYTES // 8, **options),
}
OPTIONS = [{}, {"delivery": "kernel"}, {"delivery": "direct"}, {"delivery": "thread"}, {"delivery": "signal"}]


@pytest.fixture(params=MAKERS)
def maker(request):
    return MAKERS[request.param]


@pytest.fixture(params=OPTIONS, ids=lambda options: options.get("delivery", "default"))
def make(request, maker):
    """Makes arrays of one kind, ready for system calls: as they come, unless the documentation says what to do first."""
    options = request.param
    try:
        region = faultless.Region(1, **options)
    except faultless.RegionError as error:
        pytest.skip(str(error))
    assert options or region.serves_system_calls

    def ready():
        array = maker(**options)
        if not region.serves_system_calls and array.base is not None:
            owner = array.base if hasattr(array.base, "populate") else array.base.obj
            owner.populate()
        return array

    return ready


def test_save_and_load(make):
    with tempfile.TemporaryFile() as file:
        array = make()
        np.save(file, array)
        file.seek(0)
        loaded = np.load(file)
        assert loaded.shape == array.shape and (loaded == array).all()


def test_tofile_and_fromfile(make):
    with tempfile.NamedTemporaryFile() as file:
        array = make()
        array.tofile(file.name)
        assert os.path.getsize(file.name) == array.nbytes
        assert (np.fromfile(file.name, array.dtype).reshape(array.shape) == array).all()


def test_write_and_readinto(make):
    with tempfile.TemporaryFile(buffering=0) as file:
        a = make()
        assert file.write(memoryview(a.reshape(-1, order="A")).cast("B")) == a.nbytes
        file.seek(0)
        file.write(b"\7" * a.nbytes)
        file.seek(0)
        b = make().reshape(-1, order="A").view(np.uint8)
        assert file.readinto(memoryview(b)) == b.nbytes and (b == 7).all()
    c = make().reshape(-1, order="A").view(np.uint8)
    assert io.BytesIO(b"x" * c.nbytes).readinto(memoryview(c)) == c.nbytes


def test_preadv_and_pwritev(make):
    with tempfile.TemporaryFile() as file:
        a, b = (make().reshape(-1, order="A").view(np.uint8) for _ in range(2))
        assert os.pwritev(file.fileno(), [memoryview(a), memoryview(b)], 0) == 2 * a.nbytes
        c = make().reshape(-1, order="A").view(np.uint8)
        assert os.preadv(file.fileno(), [memoryview(c)], 0) == c.nbytes and (c == a).all()


def test_send_and_receive(make):
    left, right = socket.socketpair()
    with left, right:
        sent, received = (make().reshape(-1, order="A").view(np.uint8) for _ in range(2))
        sender = threading.Thread(target=left.sendall, args=(memoryview(sent),))
        sender.start()
        got = 0
        while got < received.nbytes:
            got += right.recv_into(memoryview(received)[got:])
        sender.join()
        assert (received == sent).all()


def test_without_populate_signals_fail_and_say_so(maker):
    try:
        region = faultless.Region(BYTES, delivery="signal")
    except faultless.RegionError as error:
        pytest.skip(str(error))
    assert not region.serves_system_calls
    with open("/dev/zero", "rb", buffering=0) as file, pytest.raises(OSError, match="Bad address"):
        file.readinto(memoryview(region))
