"""An instance of Artemis, made by its own ``create`` and run as a process: the second opinion of tests beside it."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

from .ports import free_port
from .stomp_client import StompClient
from .waiting import Deadline

#: Java takes its time, also on a machine that is busy.
START_TIMEOUT = 180.0

USER, PASSWORD, ROLE = "u", "p", "r"

ACCEPTOR = re.compile(r"^\s*<acceptor name=.*\n", re.MULTILINE)


class ArtemisInstance:
    """One acceptor for STOMP and Artemis's own protocol, on a free port; the user ``u`` with password ``p``."""

    def __init__(self, home: Path, root: Path, parameters: str = "", address_settings: str = "") -> None:
        self.root = root
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        login = ("--user", USER, "--password", PASSWORD, "--role", ROLE, "--require-login")
        less = (
            "--no-autotune",
            "--no-web",
            "--no-amqp-acceptor",
            "--no-mqtt-acceptor",
            "--no-hornetq-acceptor",
        )
        self._run(
            home / "bin" / "artemis",
            "create",
            str(root),
            *login,
            *less,
            "--silent",
            "--java-memory",
            "512M",
        )
        file = root / "etc" / "broker.xml"
        text = ACCEPTOR.sub("", file.read_text())
        acceptor = (
            f'<acceptor name="all">tcp://127.0.0.1:{self.port}?protocols=CORE,STOMP;{parameters}</acceptor>'
        )
        text = text.replace("<acceptors>", f"<acceptors>{acceptor}")
        file.write_text(text.replace("<address-settings>", f"<address-settings>{address_settings}"))

    def start(self) -> None:
        """Run it until STOMP clients can connect."""
        log = (self.root / "log" / "console.log").open("wb")
        with log:
            self._process = subprocess.Popen(
                [self.root / "bin" / "artemis", "run"], stdout=log, stderr=subprocess.STDOUT
            )
        deadline = Deadline(START_TIMEOUT)
        while True:
            try:
                self.client()
                return
            except OSError:
                assert self._process.poll() is None, (self.root / "log" / "console.log").read_text()
                assert not deadline.passed(), "Artemis did not start in time"
                deadline.pause(0.2)

    def stop(self) -> None:
        """As by an operator."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)

    def __enter__(self) -> ArtemisInstance:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def client(self, client_id: str | None = None) -> StompClient:
        """A connected client."""
        client = StompClient(self.port)
        headers = {"login": USER, "passcode": PASSWORD}
        client.connect(headers if client_id is None else {**headers, "client-id": client_id})
        return client

    def command(self, *arguments: str, parameters: str = "") -> None:
        """A command of Artemis that talks to the running broker."""
        login = ("--user", USER, "--password", PASSWORD, "--silent")
        url = f"tcp://127.0.0.1:{self.port}{parameters}"
        self._run(self.root / "bin" / "artemis", *arguments, *login, "--url", url)

    def export(self, file: Path) -> None:
        """``artemis data exp`` of the stopped broker."""
        file.write_bytes(self._run(self.root / "bin" / "artemis", "data", "exp"))

    @staticmethod
    def _run(*arguments: str | Path) -> bytes:
        done = subprocess.run(
            list(map(str, arguments)), capture_output=True, timeout=START_TIMEOUT, check=False
        )
        assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout
