"""The command ``stompring``: in this process, in a process with pipes, and on a terminal."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path

from click.testing import CliRunner

from stompring.cli.main import main

from ..broker_pool import python_path
from ..broker_process import PATIENCE, ROOT
from ..management import Management
from ..waiting import LONGEST
from .command import COMMAND, FOREIGN, readable, words

#: Escape sequences of a terminal.
SEQUENCES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[()][A-Za-z0-9]|[=>78])")


@dataclass
class Ran:
    """What a command did."""

    status: int
    stdout: str
    stderr: str = ""

    @property
    def json(self):
        """What ``--json`` prints."""
        return json.loads(self.stdout)

    @property
    def rows(self):
        """A table in a pipe."""
        head, *lines = self.stdout.splitlines()
        return [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]


@dataclass
class Cli:
    """Runs commands against one broker; ``home`` has the contexts."""

    port: int
    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def server(self):
        """The URL of the broker."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def management(self):
        """The broker itself."""
        return Management(self.port)

    def _settings(self, **others):
        """What the commands find in the environment."""
        return {
            "XDG_CONFIG_HOME": str(self.home),
            "STOMPRING_SERVER": self.server,
            **self.environment,
            **others,
        }

    def env(self, **others):
        """The environment of a process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return {**kept, "PYTHONPATH": python_path(ROOT), **self._settings(**others)}

    def run(self, *line, typed="", status=0, **environment):
        """Run a command in this process, not on a terminal. Its exit status must be ``status``, unless that is None."""
        foreign = {name: None for name in os.environ if name.startswith(FOREIGN)}
        runner = CliRunner(env={**foreign, **self._settings(**environment)})
        ran = runner.invoke(main, words(line), input=typed, prog_name="stompring")
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        assert status is None or ran.exit_code == status, (line, ran.exit_code, ran.stdout, ran.stderr)
        assert "Traceback" not in ran.stderr, ran.stderr
        return Ran(ran.exit_code, ran.stdout, ran.stderr)

    def pipe(self, *line, typed="", status=0, **environment):
        """Run a command in a process with pipes."""
        ran = subprocess.run(
            [*COMMAND, *words(line)],
            input=typed,
            capture_output=True,
            text=True,
            timeout=LONGEST * PATIENCE,
            env=self.env(**environment),
            check=False,
        )
        assert ran.returncode == status, (line, ran.returncode, ran.stdout, ran.stderr)
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def start(self, *line, **environment):
        """Start a command in pipes."""
        return subprocess.Popen(
            [*COMMAND, *words(line)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env(**environment, PYTHONUNBUFFERED="1"),
            # the tests may run in the background of a shell
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
        )

    def terminal(self, *line, columns=80, rows=24, **environment):
        """Start a command on a terminal."""
        return Terminal(
            [*COMMAND, *words(line)], self.env(TERM="xterm-256color", **environment), columns, rows
        )


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, words, env, columns, rows):
        self.pid, self._descriptor = pty.fork()
        if not self.pid:
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # the tests may run in the background of a shell
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                os.execve(words[0], words, env)  # noqa: S606
            finally:
                os._exit(127)
        self.output = ""
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self._descriptor)

    @property
    def text(self):
        """The output without escape sequences."""
        return SEQUENCES.sub("", self.output).replace("\r\n", "\n")

    def type(self, text):
        """Type text."""
        os.write(self._descriptor, text.encode())

    def interrupt(self):
        """Press Ctrl-C, again if the command has not ended 5 s later.

        Python misses a signal that arrives between its last look for one and the read of the answer.
        """
        for _ in range(3):
            self.type("\x03")
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                if not self._read(deadline - time.monotonic()):
                    return

    def resize(self, columns, rows):
        """Change the size; the command gets SIGWINCH."""
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self, seconds):
        if not readable(self._descriptor, seconds):
            return True
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # EIO: the command has ended
            return False
        self.output += data.decode("utf-8", "replace")
        return bool(data)

    def expect(self, pattern, after=0):
        """Wait until the pattern is in the output beyond a position of `text`; returns the position after it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            if found := re.compile(pattern).search(self.text, after):
                return found.end()
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{pattern!r} does not appear:\n{self.text}")

    def wait(self, status=0):
        """The text of all output, once the command has ended with this status."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._read(deadline - time.monotonic()):
            pass
        _, code = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(code)
        assert status is None or self.status == status, (self.status, self.text)
        return self.text


@contextmanager
def answering(*answers):
    """A server whose connections get these answers, one each, and the last one from then on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for answer in chain(answers, repeat(answers[-1])):
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def field_lines(ran):
    """``field<TAB>value`` lines."""
    return dict(line.split("\t", 1) for line in ran.stdout.splitlines())
