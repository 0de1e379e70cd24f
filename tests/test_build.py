"""Which build runs: pure Python in this process, and in brokers the one that the tests were started for."""

import subprocess

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


@pytest.mark.skipif(build() != "compiled", reason="the compiled build is not asked for")
def test_the_kit_for_policies_runs_on_the_compiled_build():
    words = [*python(), "-c", KIT]
    environment = {"PYTHONPATH": broker_path(), "PATH": ""}
    ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
