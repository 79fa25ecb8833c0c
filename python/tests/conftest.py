"""A test that hangs ends the run, and says where. Each mode of delivery that is to be had."""

import faulthandler
import os
import signal

import pytest

import faultless

SECONDS = 110
# Tests that may be unable to run where CI=true, and for what reason. Every other test that cannot run fails there.
EXCEPTIONS = [("test_ordinary_users_have_what_root_has", "this is one")]
SNAPSHOTS = [
    "test_whatever_a_killed_process_left_is_in_nobodys_way[10]",
    "test_whatever_a_killed_process_left_is_in_nobodys_way[1024]",
    "test_a_snapshot_holds_what_was_there",
    "test_a_snapshot_of_a_file_keeps_its_moment",
    "test_views_and_orders",
    "test_files_are_numpys[C]",
    "test_files_are_numpys[F]",
    "test_a_state_is_saved_while_it_changes",
    "test_a_save_that_is_interrupted_leaves_nothing",
    "test_errors_leave_what_was_there",
    "test_a_file_that_cannot_be_written_is_pythons_error[10]",
    "test_a_file_that_cannot_be_written_is_pythons_error[1024]",
    "test_a_disk_that_is_full_is_pythons_error",
    "test_a_name_may_be_bytes[10]",
    "test_a_name_may_be_bytes[1024]",
    "test_a_rate_is_a_whole_number[10]",
    "test_a_rate_is_a_whole_number[1024]",
    "test_a_file_is_opened_lazily_and_may_change",
    "test_the_example_goes_on_where_it_was_saved",
]
if os.geteuid() != 0:
    # The kernel tells of forks only who may trace others.
    EXCEPTIONS.append(("test_events_are_for_threads", "give the process CAP_SYS_PTRACE for those of fork"))
    # Faults of the kernel's own are for those who may trace others, too.
    EXCEPTIONS += [
        (f"test_an_array_that_is_larger_than_the_budget[{mode}]", "no userfaultfd that serves system calls")
        for mode in ("r", "r+", "c")
    ]
    # So are snapshots.
    EXCEPTIONS += [(name, "`faultless doctor` says how to allow it") for name in SNAPSHOTS]
    # And regions with a store.
    store = "so a system call on a page in the store would fail"
    WITH_STORE = [
        "test_an_array_that_is_larger_than_its_memory",
        "test_the_example_sorts_more_than_its_memory",
        "test_the_page_of_regions_larger_than_memory",
    ]
    EXCEPTIONS += [(name, store) for name in WITH_STORE]
    # The page takes the best delivery that there is.
    EXCEPTIONS.append(("test_the_page_of_snapshots", "only it notices all writes, also those of system calls"))
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


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupted():
    """A function that has a signal handler raise an exception in a call, which is to end by it."""

    def handler(*_):
        raise Interrupted

    def interrupts(call):
        # One signal alone: the handler is not to be called again for another.
        with pytest.raises(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            call()

    before = signal.signal(signal.SIGALRM, handler)
    yield interrupts
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
