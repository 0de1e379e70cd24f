"""The modules in C, compiled for tests where there is a compiler."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "stompring" / "stomp"


@cache
def _compiled(name):
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    include = Path(sysconfig.get_path("include"))
    if compiler is None or not (include / "Python.h").exists():
        return None
    directory = Path(tempfile.mkdtemp(prefix="native-"))
    target = directory / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    source = SOURCES / f"{name}.c"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", *warnings, f"-I{include}", source, "-o", target], check=True
    )
    spec = spec_from_file_location(name, target)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.rmtree(directory)
    return module


def native(name):
    """The module; skips the test where it cannot be compiled."""
    module = _compiled(name)
    if module is None:
        pytest.skip("a C compiler is not installed with the headers of Python")
    return module


def builds(name):
    """None for the functions in Python, and the module where it can be compiled."""
    module = _compiled(name)
    return [None] if module is None else [None, module]


def native_cutter():
    """The class that cuts header blocks."""
    return native("_cut").Cutter
