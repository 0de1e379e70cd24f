"""ActiveMQ Artemis from an unpacked distribution, named by the environment variable `ARTEMIS_HOME`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from lxml import etree

from benchmarks.brokers.process import HOST, Broker, BrokerDied, Launch

CORE = "{urn:activemq:core}"


class Artemis(Broker):
    """An instance as `artemis create` makes it, with one acceptor for STOMP in place of its own acceptors."""

    name: ClassVar[str] = "artemis"
    warm_seconds: ClassVar[float] = 5.0

    @classmethod
    def missing(cls) -> str | None:
        home = os.environ.get("ARTEMIS_HOME")
        if not home:
            return "ARTEMIS_HOME is not set"
        if not Path(home, "bin/artemis").exists():
            return f"ARTEMIS_HOME is {home}, and there is no bin/artemis in it"
        return None if shutil.which("java") else "no java in the PATH"

    def version(self) -> str:
        jars = sorted(Path(os.environ["ARTEMIS_HOME"], "lib").glob("artemis-server-[0-9]*.jar"))
        return jars[0].stem.removeprefix("artemis-server-") if jars else "unknown"

    def prepare(self) -> Launch:
        instance = self.directory / "instance"
        made = subprocess.run(
            [
                Path(os.environ["ARTEMIS_HOME"], "bin/artemis"),
                "create",
                "--silent",
                "--no-web",
                "--allow-anonymous",
                "--user",
                "bench",
                "--password",
                "bench",
                str(instance),
            ],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise BrokerDied(f"artemis create ended with {made.returncode}:\n{made.stdout}{made.stderr}")
        self._write_acceptor(instance / "etc/broker.xml")
        return Launch([str(instance / "bin/artemis"), "run"])

    def _write_acceptor(self, path: Path) -> None:
        tree = etree.parse(str(path))
        acceptors = tree.find(f".//{CORE}acceptors")
        if acceptors is None:
            raise BrokerDied(f"{path}: no <acceptors> in what artemis create wrote")
        acceptors.clear()
        acceptor = etree.SubElement(acceptors, f"{CORE}acceptor", name="stomp")
        acceptor.text = (
            f"tcp://{HOST}:{self.port}?protocols=STOMP;useEpoll=true;tcpSendBufferSize=1048576;"
            "tcpReceiveBufferSize=1048576;anycastPrefix=/queue/;multicastPrefix=/topic/"
        )
        tree.write(str(path), xml_declaration=True, encoding="UTF-8")
