"""Runs the code blocks of a tutorial in their order, in an empty directory, as its reader would.

A block of ``sh`` runs on a terminal and must succeed; a block of ``text`` after it is what it prints, where ``…`` is
anything. A comment ``<!-- test: … -->`` before a block says something else:

- ``broker``: the block is ``stompring run …``; it stays running, and an earlier broker is stopped first
- ``file=NAME``: the block is saved
- ``background=NAME``: the block is started and stays running; ``output=NAME`` before a ``text`` is what it prints
- ``exit=N``: the expected exit code
- ``password``: the output of the block before has a password, which the block reads from standard input
- ``where=NAME``: the block runs where that language has its STOMP client; else it and its output are skipped
- ``elsewhere``: the block is for another machine or program, and is not run
- ``page=URL``: the block is text that the page at URL shows in a browser

Ports of the documentation are replaced by free ones everywhere.
"""

import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.machine import data_directory, shipped_file

from ..broker_process import PATIENCE, BrokerProcess
from ..cli.command import environment, readable
from ..ports import free_ports
from ..waiting import LONGEST
from .pages import blocks_of
from .source import ROOT

#: Ports that tutorials use.
PORTS = ("61613", "61614", "61612", "61616", "8161", "8000")

#: What a comment before a block may begin with; without a comment it is the language that counts.
DIRECTIVES = {"", "broker", "file", "background", "output", "exit", "password", "where", "elsewhere", "page"}

#: Where the clients for JavaScript are installed.
CLIENTS = ROOT / "tests" / "end_to_end" / "clients"

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Running:
    """A process on a terminal, with what it has printed."""

    process: subprocess.Popen[bytes]
    master: int
    raw: bytes = b""

    @property
    def output(self):
        """As the terminal shows it at the end: without colours, and without lines that were replaced."""
        text = re.sub(r"\r+\n", "\n", _ANSI.sub("", self.raw.decode("utf-8", "replace")))
        return re.sub(r"[^\n]*\r(?!$)", "", text)

    def read(self, until, patience=LONGEST * PATIENCE):
        """Read until the output is as wanted, or ends. Returns whether it is."""
        deadline = time.monotonic() + patience
        while not until(self.output):
            if time.monotonic() > deadline:
                return False
            if not readable(self.master, 0.1):
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return until(self.output)
            if not data:
                return until(self.output)
            self.raw += data
        return True

    def stop(self):
        """As Ctrl-C."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        os.close(self.master)


@dataclass
class Tutorial:
    """One page, run in ``directory``."""

    directory: Path
    page: str
    opened: ExitStack
    installed: Path | None = None  # where the wheel is installed; None: the checkout
    ports: dict[str, str] = field(init=False)
    broker: BrokerProcess | None = None
    background: dict[str, Running] = field(default_factory=dict)
    last: str = ""  # output of the last block
    skipping: bool = False  # the last block was skipped, and so is its output

    def __post_init__(self):
        self.path = {} if self.installed is None else {"PYTHONPATH": str(self.installed)}
        self.ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self.work = self.directory / "work"
        self.home = self.directory / "home"
        commands = self.directory / "bin"
        for each in (self.work, self.home, commands):
            each.mkdir()
        for name, words in (("stompring", "-m stompring"), ("python", "")):
            script = commands / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
            script.chmod(0o755)
        self.environment = {
            **environment(self.home, XDG_CONFIG_HOME=""),
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "NODE_PATH": str(CLIENTS / "node_modules"),
            "NO_COLOR": "1",
            "TERM": "xterm",
            "COLUMNS": "120",
            **self.path,
        }
        if "stompring context add" not in self.page:
            self.environment["STOMPRING_BROKER"] = f"stomp://127.0.0.1:{self.ports['61613']}"
            self.environment["STOMPRING_SERVER"] = f"http://127.0.0.1:{self.ports['8161']}"

    def run(self):
        """Every block, in order. Raises AssertionError with the line of the block."""
        self.opened.callback(self.close)
        for block in blocks_of(self.page):
            try:
                self._run(block)
            except AssertionError as fault:
                log = "\n".join(self.broker.log[-20:]) if self.broker is not None else ""
                raise AssertionError(f"line {block.line}: {fault}\n{log}") from None

    def close(self):
        """Stop everything."""
        for each in self.background.values():
            each.stop()
        self.stop_broker()

    def stop_broker(self):
        """Stop the broker that runs, and look for faults in its log."""
        if self.broker is not None:
            broker, self.broker = self.broker, None
            broker.stop()

    def at(self, text):
        """The text with free ports."""
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: self.ports[found[1]], text)

    def _run(self, block):
        text = self.at(block.text)
        if block.key == "file":
            (self.work / block.value).parent.mkdir(parents=True, exist_ok=True)
            (self.work / block.value).write_text(text)
        elif block.key == "broker":
            self._start_broker(shlex.split(block.text))
        elif block.key == "background":
            self.background[block.value] = self._start(text)
        elif block.key == "output":
            running = self.background[block.value]
            pattern = expected(text)
            assert running.read(lambda output: pattern.search(output) is not None), (
                f"{running.output!r}\nis not\n{text}"
            )
        elif block.key == "where" and not has_client(block.value):
            self.skipping = True
        elif block.language == "text" and self.skipping:
            self.skipping = False
        elif block.key == "elsewhere":
            pass
        elif block.key == "page":
            self._browse(self.at(block.value), text.strip())
        elif block.language == "sh":
            self._shell(block, text)
        elif block.language == "text":
            assert expected(text).fullmatch(self.last.strip() + "\n"), f"{self.last!r}\nis not\n{text}"
        else:
            raise AssertionError(f"a block of {block.language} that nothing runs")

    def _shell(self, block, text):
        password = re.search(r"password (\S+)", self.last)
        running = self._start(text)
        if block.key == "password":
            assert password is not None, self.last
            assert running.read(lambda output: "Password" in output), running.output
            os.write(running.master, password[1].encode() + b"\n")
        running.read(lambda output: False)
        code = running.process.wait(PATIENCE)
        os.close(running.master)
        self.last = running.output
        wanted = int(block.value) if block.key == "exit" else 0
        assert code == wanted, f"exit code {code}:\n{text}\n{self.last}"

    def _start(self, text):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            ["sh", "-ec", text],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=self.work,
            env=self.environment,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
        )
        os.close(slave)
        return Running(process, master)

    def _start_broker(self, words):
        assert words[:2] == ["stompring", "run"], words
        self.stop_broker()
        if words[2:3] == ["--config"]:
            (name,) = words[3:]
            config = self.work / name
            config.write_text(self.at(config.read_text()))
            data = data_directory(read_broker_xml(str(config))).root
        else:
            assert words[2:] == [], words
            config, data = self.directory / "broker.xml", self.home / ".local" / "state" / "stompring"
            shipped = shipped_file("config", "broker.xml").read_text()
            config.write_text(self.at(shipped))
        self.broker = BrokerProcess(config, data, env=self.path or None)
        self.broker.__enter__()

    def _browse(self, url, text):
        from playwright.sync_api import expect

        from ..console.browser import launch

        browser = self.opened.enter_context(launch())
        page = browser.new_page()
        page.goto(url)
        expect(page.locator("body")).to_contain_text(text, timeout=PATIENCE * 1000)


def expected(text):
    """The pattern of an output: ``…`` is anything, blanks at line ends do not count."""
    pattern = ""
    for line in text.strip().splitlines():
        whole = line.strip() == "…"  # any number of lines
        pattern += r"(?:.*\n)*?" if whole else re.escape(line.rstrip()).replace("…", ".*") + r"[ \t]*\n"
    return re.compile(pattern)


#: How to see whether the STOMP client of a language is installed.
PROBES = {
    "node": ("node", "-e", "require('@stomp/stompjs'); require('ws')"),
    "ruby": ("ruby", "-e", "require 'stomp'"),
}


def has_client(language):
    """Whether programs in that language can be run."""
    probe = PROBES[language]
    return shutil.which(probe[0]) is not None and (
        subprocess.run(probe, cwd=CLIENTS, capture_output=True, check=False).returncode == 0
    )
