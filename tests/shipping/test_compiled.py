"""The compiled build: wheels and copies of a checkout have extension modules, and only where they were asked for.

Only two modules are compiled here: the compiled copy of the checkout has all of them.
"""

import importlib.machinery
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec

import pytest

from ..broker_process import ROOT
from ..compiled_differences import compiled_modules
from ..nats_cluster import wait_until
from ..packages import Environment, copy_checkout, run, without_python_variables

pytestmark = [
    pytest.mark.long,  # it compiles; `make test` runs brokers on the copy that it has compiled itself
    pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is not installed"),
    pytest.mark.skipif(find_spec("mypyc") is None, reason="mypyc is not installed: pip install '.[compile]'"),
    pytest.mark.timeout(300),
]

#: How the file of an extension module ends.
ENDING = importlib.machinery.EXTENSION_SUFFIXES[0]

TWO = ["errors", "stomp.frames"]


def environ(compile_modules):
    return {**without_python_variables(), "STOMPRING_COMPILE": compile_modules}


def background(checkout, compile_modules=""):
    """What ``make run`` asks: exit status and report."""
    ended = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "compile", "--background"],
        cwd=checkout,
        env={**environ(compile_modules), "PATH": f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    return ended.returncode, ended.stdout


def new_checkout(directory):
    """A checkout with two modules to compile."""
    copy_checkout(directory)
    settings = directory / "pyproject.toml"
    text, count = re.subn(
        r"(?m)^compiled = \[[^]]*\]", f"compiled = {TWO}".replace("'", '"'), settings.read_text()
    )
    assert count == 1
    settings.write_text(text)
    # make run compiles with low priority, which gets next to nothing beside the other tests
    nice = directory / "bin" / "nice"
    nice.parent.mkdir()
    nice.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    nice.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout whose compiled copy was built in the background."""
    directory = new_checkout(tmp_path_factory.mktemp("checkout"))
    assert background(directory, "0") == (1, "running the modules as pure Python: STOMPRING_COMPILE=0\n")
    assert not (directory / "build" / "compiled").exists()
    code, shown = background(directory)
    assert (code, "for the next start" in shown) == (1, True)
    copy = directory / "build" / "compiled" / "FINGERPRINT"
    wait_until(copy.exists, "the compiled copy is built", 250)
    assert background(directory, "0")[0] == 0
    return directory


def modules(checkout):
    """The paths of the modules that a checkout compiles, without their ending, and of the modules in C."""
    every = [*compiled_modules(checkout), *(checkout / "stompring").rglob("*.c")]
    return {path.relative_to(checkout).with_suffix("").as_posix() for path in every}


def assert_contents(checkout, names):
    """Each module in both forms, nothing that was made on the way, and the shipped files."""
    extensions = {name.removesuffix(ENDING) for name in names if name.endswith(ENDING)}
    assert {name for name in extensions if "__mypyc" not in name} == modules(checkout)
    assert any("__mypyc" in name for name in extensions)
    assert [name for name in names if name.endswith((".c", ".h", ".o"))] == []
    assert {"stompring/errors.py", "stompring/shipped/config/broker.xml"} <= set(names)


def files(directory):
    return [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()]


def test_a_compiled_copy_has_the_modules_in_both_forms_and_the_shipped_files(checkout):
    """That of two modules; that of all modules where this checkout has one."""
    every = [checkout] if background(ROOT, "0")[0] else [checkout, ROOT]
    for each in every:
        assert_contents(each, files(each / "build" / "compiled"))


def test_a_compiled_wheel_is_of_one_python_and_platform(checkout, tmp_path):
    """Made of the compiled copy: nothing is compiled again."""
    (tmp_path / ".pydistutils.cfg").write_text("[build]\nbuild_lib = build/compiled\n")
    words = ["bdist_wheel", "--skip-build", "--dist-dir", tmp_path]
    run([sys.executable, "setup.py", "--quiet", *words], checkout, {**environ("1"), "HOME": str(tmp_path)})
    (wheel,) = tmp_path.glob("*.whl")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"stompring-.+-{tag}-{tag}-\w+\.whl", wheel.name) and "none-any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        assert_contents(checkout, archive.namelist())


def test_a_compiled_copy_runs_until_a_source_changes(checkout):
    assert background(checkout) == (0, "running the compiled modules in build/compiled\n")
    path = os.pathsep.join(map(str, (checkout / "build" / "compiled", checkout)))
    words = [sys.executable, "-c", "import stompring; print(stompring.build(), stompring.__file__)"]
    shown = run(words, checkout / "docs", {**environ(""), "PYTHONPATH": path})
    assert shown.split() == ["compiled", str(checkout / "build" / "compiled" / "stompring" / "__init__.py")]
    errors = checkout / "stompring" / "errors.py"
    text = errors.read_text()
    errors.write_text(f"{text}\n\nLATER = 1\n")
    assert background(checkout, "0")[0] == 1
    errors.write_text(text)


def test_a_compiled_wheel_is_built_and_installed_and_says_what_it_is(checkout, tmp_path):
    words = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, checkout)
    run(words, checkout, environ("1"))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert_contents(checkout, archive.namelist())
    environment = Environment(tmp_path / "environment")
    environment.install(wheel)
    shown = run([environment.bin / "stompring", "--version"], tmp_path, environment.environ())
    assert shown.endswith("(compiled)\n")


@pytest.mark.long
def test_an_editable_installation_has_no_extension_modules(checkout, tmp_path):
    environment = Environment(tmp_path / "environment")
    environment.install("--editable", checkout, STOMPRING_COMPILE="1")
    shown = run([environment.bin / "stompring", "--version"], tmp_path, environment.environ())
    assert shown.endswith("(pure Python)\n")
    assert list((checkout / "stompring").rglob("*.so")) == []


@pytest.mark.long
def test_a_failed_compilation_is_reported_and_not_repeated(tmp_path):
    source = new_checkout(tmp_path / "checkout")
    with open(source / "stompring" / "errors.py", "a") as errors:
        errors.write("\n\nWRONG: int = 'text'\n")
    assert background(source)[0] == 1
    wait_until(lambda: "failed" in background(source)[1], "the compilation fails", 250)
    code, shown = background(source)
    assert (code, "compiling them has failed: see build/compile.log" in shown) == (1, True)
    assert "str" in (source / "build" / "compile.log").read_text()
