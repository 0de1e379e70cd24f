"""Which build runs: pure Python in this process, and in brokers the one that the tests were started for."""

import configparser
import re
import subprocess
import tomllib

import pytest

import stompring

from .broker_pool import broker_path, build, python
from .broker_process import ROOT

#: The kit for tests of policies, in one process with the build.
KIT = """
import stompring, pytest, sys
assert stompring.build() == "compiled"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/policy/test_testing.py"]))
"""


def test_this_process_runs_pure_python():
    assert stompring.build() == "pure Python"


def test_a_broker_reports_its_build(broker, management):
    assert management.ask("GET", "/broker")["build"] == build()
    assert any(f"stompring {stompring.__version__} ({build()})" in line for line in broker.log)
    assert any(stompring.ADVICE in line for line in broker.log) is (build() == "pure Python")


def test_wheels_tests_and_metadata_are_for_the_same_versions():
    tox, setup = (configparser.ConfigParser() for _ in range(2))
    tox.read(ROOT / "tox.ini")
    setup.read(ROOT / "setup.cfg")
    wheels = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["build"]
    expected = ["311", "312", "313", "314"]
    assert re.findall(r"py(3\d+)", tox["tox"]["env_list"]) == expected
    assert re.findall(r"cp(\d+)-", wheels) == expected
    classifiers = re.findall(r":: 3\.(\d+)", setup["metadata"]["classifiers"])
    assert [f"3{minor}" for minor in classifiers] == expected
    assert "3.11 to 3.14" in stompring.ADVICE


@pytest.mark.skipif(build() != "compiled", reason="the compiled build is not asked for")
def test_the_kit_for_policies_runs_on_the_compiled_build():
    words = [*python(), "-c", KIT]
    environment = {"PYTHONPATH": broker_path(), "PATH": ""}
    ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
