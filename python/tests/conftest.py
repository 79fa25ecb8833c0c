"""A test that hangs ends the run, and says where. Each mode of delivery that is to be had."""

import faulthandler
import os

import pytest

import faultless

SECONDS = 110
DELIVERIES = ["best", "kernel", "direct", "thread", "signal"]


def pytest_configure(config):
    # Before anything is captured.
    config.stderr = os.dup(2)


@pytest.fixture(autouse=True)
def limited(pytestconfig):
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=pytestconfig.stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(params=DELIVERIES)
def delivery(request):
    try:
        faultless.Region(1, delivery=request.param)
    except faultless.RegionError as error:
        pytest.skip(str(error))
    return request.param
