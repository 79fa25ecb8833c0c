"""Everything public is documented with an example that works."""

import doctest
import inspect
import pathlib
import re

import pytest

import faultless


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


def run_blocks(page, space):
    # Beside the tests in a checkout; examples are plain code.
    text = (pathlib.Path(__file__).parents[1] / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks, f"{page} has no block"
    for block in blocks:
        exec(block, space)
    return space


def test_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks("README.md", {})


def test_the_page_of_snapshots(tmp_path, monkeypatch):
    try:
        faultless.snapshot(faultless.zeros((1024, 1024)))
    except faultless.RegionError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    space = run_blocks("../docs/snapshots.md", {"faultless": faultless})
    # Saved as it was at the snapshot.
    assert (space["b"] == 0).all() and (space["a"] == 1).all()


def test_the_page_of_regions_larger_than_memory(capsys):
    try:
        faultless.zeros((1024, 1024), swap=4 << 20)
    except faultless.RegionError as error:
        pytest.skip(str(error))
    run_blocks("../docs/swap.md", {"faultless": faultless})
    assert capsys.readouterr().out == "16777216.0\n"


def test_version_and_names():
    assert re.fullmatch(r"\d+\.\d+\.\d+", faultless.__version__)
    assert set(faultless.__all__) <= set(dir(faultless))
    with pytest.raises(AttributeError):
        faultless.nonsense
