"""Everything public is documented with an example that works, and its types are what the stubs say."""

import doctest
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import faultless

PACKAGE = pathlib.Path(faultless.__file__).parent


def public():
    for name in faultless.__all__:
        thing = getattr(faultless, name)
        if name.startswith("__"):
            continue
        yield name, thing
        if inspect.isclass(thing) and thing is not faultless.RegionError:
            for inner, member in vars(thing).items():
                if not inner.startswith("_"):
                    yield f"{name}.{inner}", member


@pytest.mark.parametrize("name, thing", list(public()), ids=lambda value: value if isinstance(value, str) else "")
def test_documented_with_an_example(name, thing):
    text = inspect.getdoc(thing)
    examples = doctest.DocTestParser().get_doctest(text, {"faultless": faultless}, name, None, None)
    assert examples.examples, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said = []
    runner.run(examples, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
    if callable(thing) and thing is not faultless.RegionError:
        given = [name for name in inspect.signature(thing).parameters if name not in ("self", "options")]
        documented = re.search(r"Parameters\n-+\n(.*?)(\n\n|\Z)", text, re.S)
        for parameter in given:
            assert parameter in (documented.group(1) if documented else ""), f"{name} does not say what {parameter} is"


def test_readme():
    # Beside the tests in a checkout; examples are plain code.
    text = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks
    space = {}
    for block in blocks:
        exec(block, space)


def test_version_and_names():
    assert re.fullmatch(r"\d+\.\d+\.\d+", faultless.__version__)
    assert set(faultless.__all__) <= set(dir(faultless))
    with pytest.raises(AttributeError):
        faultless.nonsense


def mypy(*args):
    done = subprocess.run([sys.executable, "-m", *args], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_are_what_the_package_is(tmp_path):
    pytest.importorskip("mypy")
    # Python has these as names from 3.12 on.
    buffers = [f"faultless._faultless.{name}" for name in ("Block.__buffer__", "Region.__buffer__", "Region.__release_buffer__")]
    (tmp_path / "allowed").write_text("\n".join(buffers))
    allowed = ["--allowlist", str(tmp_path / "allowed"), "--ignore-unused-allowlist"]
    mypy("mypy.stubtest", "faultless", "--mypy-config-file", configuration(tmp_path), *allowed)


def configuration(tmp_path):
    path = tmp_path / "mypy.ini"
    path.write_text(f"[mypy]\nstrict = True\ncache_dir = {tmp_path}/cache\n")
    return str(path)


def test_types_of_a_program(tmp_path):
    pytest.importorskip("mypy")
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
faultless.zeros(3, delivery="pigeon")  # type: ignore[arg-type]
faultless.zeros(3, wings=2)  # type: ignore[call-arg]
"""
    )
    mypy("mypy", "--config-file", configuration(tmp_path), "--python-version", version, str(program))


def test_the_package_itself(tmp_path):
    pytest.importorskip("mypy")
    mypy("mypy", "--config-file", configuration(tmp_path), "-p", "faultless")
