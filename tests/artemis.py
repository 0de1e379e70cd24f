"""The unpacked distribution of Artemis 2.44, for tests beside it: its schema, its classes and its commands.

``STOMPRING_ARTEMIS`` names its directory; without it that is ``stompring/apache-artemis-2.44.0`` in the user's cache
directory, where ``.ci/run`` unpacks it. Tests skip without it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

VERSION = "2.44.0"
VARIABLE = "STOMPRING_ARTEMIS"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

#: ``artemis create`` starts a Java machine, which takes its time on a busy machine.
CREATE_TIMEOUT = 240


@cache
def artemis_home() -> Path | None:
    """The directory of the distribution; None where it is not installed."""
    home = Path(os.environ.get(VARIABLE) or CACHE / "stompring" / f"apache-artemis-{VERSION}")
    return home if (home / "bin" / "artemis").is_file() else None


def installed() -> Path:
    """The directory of the distribution; without it the test is skipped."""
    home = artemis_home()
    if home is None:
        pytest.skip(f"Artemis {VERSION} is not installed: set {VARIABLE}, or run .ci/run")
    return home


needs_artemis = pytest.mark.skipif(
    artemis_home() is None, reason=f"Artemis {VERSION} is not installed: set {VARIABLE}, or run .ci/run"
)
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")


def create_all(instances: Mapping[str, Sequence[str]], directory: Path) -> dict[str, Path]:
    """The broker.xml of each new instance, made by ``artemis create`` with its options and with the
    login u and the passcode p; one Java machine makes all of them."""
    options = ("--user", "u", "--password", "p", "--role", "r", "--silent", "--no-autotune")
    commands = [("create", str(directory / name), *options, *more) for name, more in instances.items()]
    done = subprocess.run(
        [str(installed() / "bin" / "artemis"), "shell"],
        input="".join(f"{shlex.join(command)}\n" for command in commands) + "exit\n",
        capture_output=True,
        text=True,
        timeout=CREATE_TIMEOUT,
        check=False,
    )
    files = {name: directory / name / "etc" / "broker.xml" for name in instances}
    assert all(file.exists() for file in files.values()), done.stdout + done.stderr
    return files


def jar_entry(jar: str, name: str) -> bytes:
    """A file in a jar of the distribution, ``artemis-server`` for example."""
    with zipfile.ZipFile(installed() / "lib" / f"{jar}-{VERSION}.jar") as archive:
        return archive.read(name)


class JavaClass(NamedTuple):
    """What tests look at in a class: constants that are strings, and names of methods."""

    constants: dict[str, str]
    methods: tuple[str, ...]


#: Bytes after the tag of an entry of the constant pool, where these are not 4 (Java Virtual Machine Specification 4.4).
_SIZES = {5: 8, 6: 8, 7: 2, 8: 2, 15: 3, 16: 2, 19: 2, 20: 2}


def java_class(jar: str, name: str) -> JavaClass:
    """A class of the distribution, by its name with dots."""
    return _ClassReader(jar_entry(jar, name.replace(".", "/") + ".class")).read()


class _ClassReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 8
        self._texts: dict[int, str] = {}
        self._strings: dict[int, int] = {}

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def read(self) -> JavaClass:
        self._constant_pool()
        self._at += 6
        interfaces = self._number(">H")
        self._at += 2 * interfaces
        constants = {}
        for name, attributes in self._members():
            value = attributes.get("ConstantValue")
            text = None if value is None else self._strings.get(struct.unpack(">H", value)[0])
            if text is not None:
                constants[name] = self._texts[text]
        return JavaClass(constants, tuple(name for name, _ in self._members()))

    def _constant_pool(self) -> None:
        entries = self._number(">H")
        index = 1
        while index < entries:
            tag = self._number(">B")
            if tag == 1:
                length = self._number(">H")
                self._texts[index] = self._data[self._at : self._at + length].decode("utf-8", "replace")
                self._at += length
            else:
                if tag == 8:
                    (self._strings[index],) = struct.unpack_from(">H", self._data, self._at)
                self._at += _SIZES.get(tag, 4)
            index += 2 if tag in (5, 6) else 1

    def _members(self) -> Iterator[tuple[str, dict[str, bytes]]]:
        for _ in range(self._number(">H")):
            self._at += 2
            name = self._texts[self._number(">H")]
            self._at += 2
            attributes = {}
            for _ in range(self._number(">H")):
                kind = self._texts[self._number(">H")]
                length = self._number(">I")
                attributes[kind] = self._data[self._at : self._at + length]
                self._at += length
            yield name, attributes
