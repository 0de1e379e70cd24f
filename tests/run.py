"""The tests of this checkout: one run, one exit code, one last line.

``python -m tests.run`` is ``make test``: the compiled copy first where there is a C compiler, then pytest for all tests
but those with the mark `long`, and beside it trial for the modules that use the reactor. Brokers in processes of their
own run the compiled copy; what runs in the process of the tests is pure Python. Other options go to pytest.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from . import leftovers
from .broker_pool import COMPILED, ROOT
from .summary import Totals
from .tools import EXCUSED, TOOLS

#: What `make test-quick` runs: rules in memory.
QUICK = (
    *(
        f"tests/{name}"
        for name in (
            "broker", "session", "settings", "selector", "stomp", "paging", "policy", "plugins", "store", "admin",
            "security", "property", "conformance",
        )
    ),
    "tests/test_layout.py",
)  # fmt: skip

#: What depends on the build of a broker in a process of its own.
SOCKETS = (
    "tests/conformance", "tests/end_to_end", "tests/hostile", "tests/failover_clients",
    "tests/crash/test_kills.py", "tests/crash/test_moves.py", "tests/crash/test_retroactive.py",
    "tests/property/test_management_requests.py",
    "tests/property/test_transaction_limits.py", "tests/test_build.py",
)  # fmt: skip

#: `make test-long`: parameters and sizes that `make test` leaves out.
LONG = {"STOMPRING_LONG": "1", "STOMPRING_EXAMPLES": "4", "STOMPRING_FUZZ_SECONDS": "60"}

#: `make test-long`: its longest cases need 60 s on an idle machine, and several minutes on a busy one.
LONG_TIMEOUT = "--timeout=600"

#: `make test-long`: short campaigns, their lengths are those of `make crash failover` divided by ten.
CAMPAIGNS = (("tests.crash", {"FAULTS": "50"}), ("tests.failover", {"FAULTS": "20"}))

REACTOR = re.compile(r"^(?:from|import) twisted\.trial", re.M)


def reactor_modules() -> list[Path]:
    """The modules that trial runs: those that import it."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path.relative_to(ROOT) for path in paths if REACTOR.search(path.read_text())]


class Run:
    """A run of all that was asked for."""

    def __init__(self, options: Sequence[str]) -> None:
        self.options = options
        self.totals = Totals()
        self.failures: list[str] = []  # what no test can report
        self.environment = dict(os.environ)
        self.compiled = "not tried"

    def compile(self) -> None:
        """Make the compiled copy; `environment` is that of brokers that run it, if there is one."""
        if os.environ.get("STOMPRING_COMPILE") == "0":
            self.compiled = "no (STOMPRING_COMPILE=0)"
        elif not any(map(shutil.which, ("cc", "gcc", "clang"))):
            self.compiled = "no (a C compiler is not installed)"
        elif find_spec("mypyc") is None:
            self.compiled = "no (mypyc is not installed)"
        elif subprocess.run(
            [sys.executable, "setup.py", "--quiet", "compile"], cwd=ROOT, check=False
        ).returncode:
            self.compiled = "no (the compilation has failed)"
            self.failures.append("the compilation has failed: brokers run as pure Python")
        else:
            self.compiled = "yes"
            self.environment["STOMPRING_BUILD"] = "compiled"

    def pytest(self, marks: str, *words: str, environment: Mapping[str, str] | None = None) -> None:
        """Run pytest with tests of these marks."""
        ignored = [f"--ignore={path}" for path in reactor_modules()]
        with tempfile.TemporaryDirectory() as directory:
            counts = Path(directory, "counts")
            command = [sys.executable, "-m", "pytest", f"--counts={counts}", *ignored, *words]
            command += [*(["-m", marks] if marks else []), *self.options]
            ended = subprocess.run(
                command, cwd=ROOT, env={**self.environment, **(environment or {})}, check=False
            )
            self.totals.add_pytest(counts.read_text() if counts.exists() else "")
        if ended.returncode not in (0, 1, pytest.ExitCode.NO_TESTS_COLLECTED):  # options may choose few
            self.failures.append(f"pytest has ended with exit code {ended.returncode}")

    def campaigns(self) -> None:
        """Run the short campaigns."""
        for module, environment in CAMPAIGNS:
            words = [sys.executable, "-m", module]
            ended = subprocess.run(words, cwd=ROOT, env={**self.environment, **environment}, check=False)
            if ended.returncode:
                self.failures.append(f"{module} has ended with exit code {ended.returncode}")

    def end(self, spark: bool, compiled: bool) -> int:
        """Print what no test reports, and the last line. Returns the exit code. Arguments: what was asked for."""
        totals = self.totals
        built = {"compiled": self.compiled} if compiled else {}
        if spark:
            built["spark"] = "yes" if totals.spark else "no"
        if os.environ.get("STOMPRING_REQUIRE") == "all":
            missing = {**totals.missing()}
            if built.get("compiled", "yes") != "yes":
                missing["C compiler"] = 0
            for tool in missing.keys() - EXCUSED.keys():
                how = TOOLS[tool].install if tool in TOOLS else "see the reason of the skip"
                self.failures.append(f"{tool} is not installed, and STOMPRING_REQUIRE=all: {how}")
            if built.get("spark") == "no":
                self.failures.append("no test with Spark has passed, and STOMPRING_REQUIRE=all")
        if not totals.counts:
            self.failures.append("no test has run")
        for failure in self.failures:
            print(f"failed: {failure}")
        totals.faults += len(self.failures)
        print(totals.last_line(**built), flush=True)
        return int(bool(totals.faults or totals.counts["failed"]))


class Trial:
    """trial beside the rest; its output follows that of pytest if it fails."""

    def __init__(self, modules: Sequence[Path]) -> None:
        environment = {key: value for key, value in os.environ.items() if key != leftovers.VARIABLE}
        self._run = leftovers.begin(environment)
        self._output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        names = [".".join(path.with_suffix("").parts) for path in modules]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "twisted.trial", *names],
            cwd=ROOT,
            env=environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def end(self, run: Run) -> None:
        """Wait for the end, and count."""
        code = self._process.wait()
        self._output.seek(0)
        output = self._output.read()
        self._output.close()
        print(output if code else f"trial: {output.rstrip().rpartition(chr(10))[2]}")
        run.totals.add_trial(output)
        run.failures += leftovers.end(self._run)

    def kill(self) -> None:
        """End it before its time."""
        self._process.kill()


def main() -> int:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__, add_help=True)
    parser.add_argument(
        "part", nargs="?", default="all", choices=["all", "long", "quick", "spark", "compiled"]
    )
    arguments, options = parser.parse_known_args()
    part = arguments.part
    run = Run(options)
    trial = Trial(reactor_modules()) if part in ("all", "long") else None
    try:
        if part in ("all", "long", "compiled"):
            run.compile()
        if part == "all":
            run.pytest("not long", "--durations=20", "tests")
            if run.compiled == "yes":  # the protocol runs in memory otherwise
                run.pytest("not long", "--over=tcp", "tests/conformance")
        elif part == "quick":
            run.pytest("not long and not spark", "--in-memory", *QUICK, environment={"STOMPRING_QUICK": "1"})
        elif part == "spark":
            run.pytest("spark and not long", "--durations=20", "tests")
        elif part == "compiled":
            run.pytest("not long", "--over=tcp", *SOCKETS)
        else:
            run.pytest("", LONG_TIMEOUT, "--durations=40", "tests", environment=LONG)
            if run.compiled == "yes":
                pure = {"STOMPRING_BUILD": "pure Python"}
                run.pytest("", LONG_TIMEOUT, "--over=tcp", *SOCKETS, environment=pure)
            run.pytest("", LONG_TIMEOUT, "--over=websocket", "tests/conformance")
            run.campaigns()
        if trial is not None:
            trial.end(run)
    except BaseException:
        if trial is not None:
            trial.kill()
        raise
    assert COMPILED.is_dir() or run.compiled != "yes"
    return run.end(spark=part in ("all", "long", "spark"), compiled=part in ("all", "long", "compiled"))


if __name__ == "__main__":
    sys.exit(main())
