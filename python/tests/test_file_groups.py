"""Groups of files, advice, and the progress of a prefetch."""

import errno
import os

import pytest

import faultless

MIB = 1 << 20


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(os.urandom(16 * MIB))
    return path


def test_a_group_never_has_more_than_its_budget(path):
    group = faultless.CacheGroup(4 * MIB)
    with faultless.open(path, group=group) as file:
        assert file.read(0, 16 * MIB) == path.read_bytes()
        assert 0 < group.used <= group.budget == 4 * MIB
        with pytest.raises(MemoryError):
            file.map()
        assert group.mapped == 0
        mapping = file.map(0, MIB)
        assert MIB <= group.mapped <= group.used <= 4 * MIB
        with pytest.raises(OSError) as caught, faultless.open(path, group=faultless.CacheGroup(4 * MIB)):
            pass
        assert caught.value.errno == errno.EBUSY
        del mapping
    with pytest.raises(ValueError):
        faultless.CacheGroup(MIB)


def test_advice_has_its_words(path):
    with faultless.open(path) as file:
        for word in ("normal", "sequential", "random", "dontneed", "huge", "nohuge"):
            file.advise(word)
        assert file.present == 0
        file.advise("willneed", 0, MIB)
        assert file.present == MIB
        mapping = file.map(0, MIB)
        mapping.advise("sequential", 5)
        for advise in (file.advise, mapping.advise):
            with pytest.raises(ValueError):
                advise("never")
            with pytest.raises(OSError):
                advise("random", 0, 17 * MIB)


def test_a_prefetch_tells_its_progress_and_ends_by_an_exception(path):
    told = []
    with faultless.open(path) as file:
        done = file.prefetch([(0, 5 * MIB), (6 * MIB, 16 * MIB)], progress=told.append)
        assert told == sorted(told) and told[-1] == done == 15 * MIB

    def stop(done):
        raise KeyboardInterrupt

    with faultless.open(path) as file:
        with pytest.raises(KeyboardInterrupt):
            file.prefetch([(0, 16 * MIB)], progress=stop)
        with pytest.raises(TypeError):
            file.prefetch([(0, 5)], progress=7)
