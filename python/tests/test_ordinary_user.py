"""All other tests, for a user without privileges: most users are."""

import faulthandler
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve()


def test_ordinary_users_have_what_root_has():
    if os.geteuid() != 0:
        pytest.skip("this is one")
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv")
    # Each test of that run has a limit of its own.
    faulthandler.cancel_dump_traceback_later()
    # It may read what is installed where only root can, and nothing else: no userfaultfd that sees faults of the kernel.
    capability = "+dac_read_search"
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]
    user += ["--inh-caps", f"-all,{capability}", "--ambient-caps", f"-all,{capability}", "--bounding-set", f"-all,{capability}"]
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE.parent)]
    # Types are the same for all.
    tests += ["--ignore", str(HERE), "--ignore", str(HERE.with_name("test_types.py"))]
    environment = {**os.environ, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run(user + tests, cwd="/", env=environment, capture_output=True, text=True, timeout=600)
    assert said.returncode == 0, said.stdout + said.stderr
    probe = "import faultless; r = faultless.Region(1); assert r.serves_system_calls; print(r.delivery)"
    made = subprocess.run([*user, sys.executable, "-c", probe], cwd="/", env=environment, capture_output=True, text=True)
    with open("/proc/sys/vm/unprivileged_userfaultfd") as setting:
        assert made.stdout.strip() == ("thread" if setting.read().strip() == "1" else "kernel"), made.stderr
