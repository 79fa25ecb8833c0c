"""A test that hangs ends the run, and says where. Each mode of delivery that is to be had."""

import faulthandler
import os

import pytest

import faultless

SECONDS = 110
# Tests that may be unable to run where CI=true, and for what reason. Every other test that cannot run fails there.
EXCEPTIONS = [("test_ordinary_users_have_what_root_has", "this is one")]
if os.geteuid() != 0:
    # The kernel tells of forks only who may trace others.
    EXCEPTIONS.append(("test_events_are_for_threads", "give the process CAP_SYS_PTRACE for those of fork"))
DELIVERIES = ["best", "kernel", "direct", "thread", "signal"]


def pytest_configure(config):
    # Before anything is captured.
    config.stderr = os.dup(2)


def fail_in_ci(report):
    """A test that says that it cannot run fails where CI=true, unless it is a named exception."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not any(report.nodeid.endswith(test) and why.endswith(reason) for test, reason in EXCEPTIONS):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} cannot run here: {why} (install or allow it, or name the test an exception)"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    fail_in_ci((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    # A module that says so.
    fail_in_ci((yield).get_result())


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
