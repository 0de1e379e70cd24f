"""The builds and reactors of stompring that the benchmarks compare.

`stompring` is the build of a user with a C compiler: compiled modules, and the broker's own reactor. The other variants
lack the compiled modules, the reactor, or both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click

from benchmarks.brokers import Stompring
from benchmarks.brokers.stompring import ROOT
from benchmarks.targets import OURS

STOCK = ("--reactor", "stock")


@cache
def compiled() -> Path | None:
    """Return the compiled copy of this tree. Build it if it is out of date (some minutes). None: the build failed.

    The environment variable `STOMPRING_CODE` names another directory with compiled modules.
    """
    if named := os.environ.get("STOMPRING_CODE"):
        return Path(named).resolve()
    click.echo("compiling, unless the compiled copy is up to date")
    made = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "compile"], cwd=ROOT, capture_output=True, text=True
    )
    if made.returncode:
        last = (made.stderr or made.stdout).strip().splitlines()[-1:]
        click.echo(f"not compiled, the pure Python modules run: {' '.join(last)}")
        return None
    return ROOT / "build/compiled"


VARIANTS: dict[str, Callable[[], Stompring]] = {
    OURS: lambda: Stompring(code=compiled(), tls=True),
    "pure Python": Stompring,
    "stock reactor": lambda: Stompring(code=compiled(), arguments=STOCK),
    "pure Python, stock reactor": lambda: Stompring(arguments=STOCK),
}
