"""A test that hangs ends the run, and says where."""

import faulthandler
import os

import pytest

SECONDS = 110


def pytest_configure(config):
    # Before anything is captured.
    config.stderr = os.dup(2)


@pytest.fixture(autouse=True)
def limited(pytestconfig):
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=pytestconfig.stderr)
    yield
    faulthandler.cancel_dump_traceback_later()
