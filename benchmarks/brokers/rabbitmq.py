"""RabbitMQ with its STOMP plugin, from Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from benchmarks.brokers.process import HOST, Broker, Launch, free_port

# RabbitMQ's own scripts: those in the PATH switch to the user rabbitmq and its directories
SCRIPTS = Path("/usr/lib/rabbitmq/bin")

CONFIG = """\
listeners.tcp.default = {host}:{amqp_port}
distribution.listener.interface = {host}
stomp.listeners.tcp.1 = {host}:{port}
loopback_users.guest = true
log.console = true
log.console.level = warning
log.file = false
"""


class RabbitMQ(Broker):
    """RabbitMQ with a separate node name, cookie, database and name server (epmd), beside an installed service."""

    name: ClassVar[str] = "rabbitmq"
    login: ClassVar[str | None] = "guest"
    passcode: ClassVar[str | None] = "guest"
    selectors: ClassVar[bool] = False

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__(env)
        self._epmd_port = free_port()
        self._env: dict[str, str] = {}
        self._epmd: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        if not (SCRIPTS / "rabbitmq-server").exists():
            return f"no {SCRIPTS / 'rabbitmq-server'} (Debian package rabbitmq-server)"
        return None if shutil.which("epmd") else "no epmd in the PATH (Debian package erlang-base)"

    def version(self) -> str:
        told = subprocess.run(
            [SCRIPTS / "rabbitmqctl", "version"],
            env=os.environ | self._env,
            capture_output=True,
            text=True,
            check=True,
        )
        return told.stdout.split()[-1]

    def prepare(self) -> Launch:
        config = self.directory / "rabbitmq.conf"
        config.write_text(CONFIG.format(host=HOST, port=self.port, amqp_port=free_port()))
        plugins = self.directory / "enabled_plugins"
        plugins.write_text("[rabbitmq_stomp].\n")
        dist_port = str(free_port())
        self._env = {
            "HOME": str(self.directory),  # folder of the Erlang cookie
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_DIST_PORT": dist_port,
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
        }
        self._epmd = subprocess.Popen(
            ["epmd", "-port", str(self._epmd_port), "-address", HOST],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return Launch([str(SCRIPTS / "rabbitmq-server")], self._env)

    def stop(self) -> None:
        super().stop()
        if self._epmd is not None:
            self._epmd.terminate()
            self._epmd.wait()
