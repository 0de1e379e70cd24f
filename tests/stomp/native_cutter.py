"""The native cutter of header blocks, compiled for tests where there is a compiler."""

import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "stompring" / "stomp" / "_cut.c"


@cache
def _compiled():
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    include = Path(sysconfig.get_path("include"))
    if compiler is None or not (include / "Python.h").exists():
        return None
    directory = Path(tempfile.mkdtemp(prefix="native-cutter-"))
    target = directory / f"_cut{sysconfig.get_config_var('EXT_SUFFIX')}"
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    words = [compiler, "-O1", "-shared", "-fPIC", *warnings, f"-I{include}", SOURCE, "-o", target]
    subprocess.run(words, check=True)
    spec = spec_from_file_location("_cut", target)
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.rmtree(directory)
    return module


def native_cutter():
    """The class; skips the test where it cannot be compiled."""
    module = _compiled()
    if module is None:
        pytest.skip("a C compiler is not installed with the headers of Python")
    made = module.Cutter
    return made
