"""The builds and reactors of stompring that are measured beside each other.

`stompring` is what a user with a C compiler gets: compiled modules, and the broker's own reactor. The others lack
one of the two, or both.
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
    """The compiled copy of this tree, built if it is not up to date (some minutes); None: it cannot be built.

    `STOMPRING_CODE` names another directory with compiled modules, as it is.
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
