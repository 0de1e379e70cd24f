"""The command ``stompring`` with an environment of its own: in this process, in another, and on a terminal."""

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner

from stompring.cli.main import main

from ..broker_pool import python_path
from ..broker_process import PATIENCE, ROOT
from ..waiting import LONGEST

#: Settings of whoever runs the tests must not reach the command.
FOREIGN = ("STOMPRING_", "XDG_", "NO_COLOR", "COLUMNS", "LINES")

COMMAND = [sys.executable, "-m", "stompring"]


def environment(home=None, **more):
    """Of a user whose home directory is ``home``, without contexts."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    nowhere = str(home or ROOT / "tests" / "no-such-home")
    return {**kept, "PYTHONPATH": python_path(ROOT), "HOME": nowhere, "XDG_CONFIG_HOME": nowhere, **more}


def words(arguments):
    """The first argument as a shell takes it apart, and the others as they are."""
    line, *others = map(str, arguments)
    return [*shlex.split(line), *others]


def invoke(*arguments, typed="", code=0):
    """Run a command in this process, in the environment of the tests. ``code`` is as for `run`."""
    done = CliRunner().invoke(main, words(arguments), input=typed)
    assert code is None or done.exit_code == code, (done.exit_code, done.output, done.exception)
    return done


def run(*arguments, stdin=b"", env=None, cwd=None, code=0):
    """Run a command in this process. ``code`` is the expected exit code, None for any."""
    wanted = dict(env or environment())
    runner = CliRunner(env={name: wanted.get(name) for name in {*os.environ, *wanted}})
    with chdir(cwd or Path.cwd()):
        done = runner.invoke(main, words(arguments), input=stdin, prog_name="stompring")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert code is None or done.exit_code == code, (done.exit_code, done.stdout, done.stderr)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout_bytes, done.stderr_bytes)


def pipe(*arguments, stdin=b"", env=None, cwd=None, code=0):
    """Run a command in a process with pipes. ``code`` is the expected exit code, None for any."""
    done = subprocess.run(
        [*COMMAND, *words(arguments)],
        input=stdin,
        capture_output=True,
        env=dict(env or environment()),
        cwd=cwd,
        timeout=LONGEST * PATIENCE,
        check=False,
        start_new_session=True,  # no terminal to ask for a password
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def start(*arguments, env=None, cwd=None):
    """Start a command and leave it running."""
    return subprocess.Popen(
        [*COMMAND, *words(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env or environment()),
        cwd=cwd,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


def readable(descriptor, seconds):
    """Whether there is something to read within a time. Unlike select.select it takes any descriptor."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(seconds, 0) * 1000))


def on_terminal(*arguments, env=None):
    """Run a command with a terminal for input and output; returns its exit code and what the terminal got."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words(arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**(env or environment()), "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(slave)
    output, deadline = b"", time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            if not readable(master, 0.1):
                continue
            try:
                data = os.read(master, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            output += data
        return process.wait(PATIENCE), output
    finally:
        process.kill()
        os.close(master)
