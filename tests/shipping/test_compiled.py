"""The compiled build: wheels and copies of a checkout have extension modules, and only where they were asked for.

Only two modules are compiled here: `make test-compiled` compiles all of them.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from importlib.util import find_spec

import pytest

from .packages import Environment, copy_checkout, run, without_python_variables

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is not installed"),
    pytest.mark.skipif(find_spec("mypyc") is None, reason="mypyc is not installed: pip install '.[compile]'"),
    pytest.mark.timeout(300),
]

MODULES = re.compile(r"[^/]+__mypyc[^/]*\.so|stompring/(errors|stomp/frames)\.[^/]+\.so")

NATIVE = re.compile(r"stompring/stomp/_cut\.[^/]+\.so")


def environ(compile_modules):
    return {**without_python_variables(), "STOMPRING_COMPILE": compile_modules}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with two modules to compile."""
    directory = tmp_path_factory.mktemp("checkout")
    copy_checkout(directory)
    settings = directory / "pyproject.toml"
    text, count = re.subn(
        r"(?m)^compiled = \[[^]]*\]", 'compiled = ["errors", "stomp.frames"]', settings.read_text()
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
def wheel(checkout, tmp_path_factory):
    """A compiled wheel."""
    dist = tmp_path_factory.mktemp("dist")
    words = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist, checkout)
    run(words, checkout, environ("1"))
    (found,) = dist.glob("*.whl")
    return found


def test_a_compiled_wheel_is_of_one_python_and_platform(wheel):
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"stompring-.+-{tag}-{tag}-\w+\.whl", wheel.name) and "none-any" not in wheel.name


def test_a_compiled_wheel_has_the_modules_in_both_forms_and_the_shipped_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert len([name for name in names if MODULES.fullmatch(name)]) == 3
    assert len([name for name in names if NATIVE.fullmatch(name)]) == 1
    assert [name for name in names if name.endswith((".c", ".h", ".o"))] == []
    assert {"stompring/errors.py", "stompring/shipped/config/broker.xml"} <= set(names)


def test_an_installed_compiled_wheel_runs_and_says_what_it_is(wheel, tmp_path):
    environment = Environment(tmp_path / "environment")
    environment.install(wheel)
    shown = run([environment.bin / "stompring", "--version"], tmp_path, environment.environ())
    assert shown.endswith("(compiled)\n")


def test_an_editable_installation_has_no_extension_modules(checkout, tmp_path):
    environment = Environment(tmp_path / "environment")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment.bin / "python"]
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--editable", checkout)
    run([*pip, "install", *options], tmp_path, environ("1"))
    shown = run([environment.bin / "stompring", "--version"], tmp_path, environment.environ())
    assert shown.endswith("(pure Python)\n")
    assert list((checkout / "stompring").rglob("*.so")) == []


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


def test_a_checkout_is_compiled_in_the_background_and_again_after_a_change(checkout):
    assert background(checkout, "0") == (1, "running the modules as pure Python: STOMPRING_COMPILE=0\n")
    assert not (checkout / "build" / "compiled").exists()
    code, shown = background(checkout)
    assert (code, "for the next start" in shown) == (1, True)
    while background(checkout, "0")[0]:
        time.sleep(0.5)
    assert background(checkout) == (0, "running the compiled modules in build/compiled\n")
    path = os.pathsep.join(map(str, (checkout / "build" / "compiled", checkout)))
    words = [sys.executable, "-c", "import stompring; print(stompring.build(), stompring.__file__)"]
    shown = run(words, checkout / "docs", {**environ(""), "PYTHONPATH": path})
    assert shown.split() == ["compiled", str(checkout / "build" / "compiled" / "stompring" / "__init__.py")]
    errors = checkout / "stompring" / "errors.py"
    errors.write_text(errors.read_text(encoding="utf-8") + "\n\nLATER = 1\n", encoding="utf-8")
    assert background(checkout, "0")[0] == 1


def test_a_failed_compilation_is_reported_and_not_repeated(checkout, tmp_path):
    source = tmp_path / "checkout"
    shutil.copytree(checkout, source, ignore=shutil.ignore_patterns("build"))
    with open(source / "stompring" / "errors.py", "a", encoding="utf-8") as errors:
        errors.write("\n\nWRONG: int = 'text'\n")
    assert background(source)[0] == 1
    while "failed" not in background(source)[1]:
        time.sleep(0.5)
    code, shown = background(source)
    assert (code, "compiling them has failed: see build/compile.log" in shown) == (1, True)
    assert (
        "WRONG" in (source / "build" / "compile.log").read_text()
        or "str" in (source / "build" / "compile.log").read_text()
    )
