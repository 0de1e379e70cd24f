"""Wheel and sdist of this checkout, built once per run, and empty environments for them, without a network."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from .broker_process import ROOT

#: Directories of a checkout that no package is built from.
OMITTED = {".git", ".venv", ".tox", ".ci", "node_modules", "__pycache__", "build", "dist", "data"}


def run(words: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """The output of a command; an AssertionError with all of it if it fails."""
    ended = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, f"{' '.join(map(str, words))}: {ended.returncode}\n{ended.stdout}"
    return ended.stdout


def copy_checkout(target: Path) -> None:
    """The files of the checkout, for a build that leaves nothing in it."""
    for directory, subdirectories, names in os.walk(ROOT):
        subdirectories[:] = [
            each for each in subdirectories if each not in OMITTED and not each.endswith(".egg-info")
        ]
        here = target / Path(directory).relative_to(ROOT)
        here.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                (here / name).write_bytes(path.read_bytes())


def without_python_variables() -> dict[str, str]:
    """The environment variables of this process, except those for Python.

    A Spark session puts the checkout on PYTHONPATH. pip would then find the metadata of a build there, take the package
    for installed, and install nothing.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def build(source: Path, target: Path) -> None:
    """The sdist, and the wheel that is built from it, into ``target``."""
    words = (sys.executable, "-m", "build", "--no-isolation", "--outdir", target, source)
    run(words, source, without_python_variables())


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sdist and wheel, which all processes of a run share. The checkout has files of a broker that ran in it."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    directory /= "packages"
    directory.mkdir(exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "built").exists():
            source = directory / "source"
            copy_checkout(source)
            (source / "config" / "users.properties").write_text("ada=secret\n")
            build(source, directory / "dist")
            (directory / "built").touch()
    (sdist,), (wheel,) = (list((directory / "dist").glob(pattern)) for pattern in ("*.tar.gz", "*.whl"))
    return sdist, wheel


class Environment:
    """An empty environment. The dependencies are those of the tests: nothing is fetched."""

    def __init__(self, directory: Path) -> None:
        run([sys.executable, "-m", "venv", "--without-pip", directory], directory.parent)
        self.bin = directory / "bin"
        (self.packages,) = directory.glob("lib/python*/site-packages")
        # A path in a .pth file is not searched for .pth files: an editable stompring stays out.
        (self.packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")

    def install(self, *words: str | Path, **more: str) -> None:
        """``pip install`` of packages that are files, without their dependencies; ``more`` environment variables."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.bin / "python"]
        options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index")
        run([*pip, "install", *options, *words], self.bin, {**without_python_variables(), **more})

    def environ(self, **more: str) -> dict[str, str]:
        """The environment variables of a user who has only this environment."""
        return {**without_python_variables(), "PATH": f"{self.bin}:{os.environ['PATH']}", **more}
