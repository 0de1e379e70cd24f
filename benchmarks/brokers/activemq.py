"""ActiveMQ Classic, as Debian packages it: its jar started directly, with one STOMP connector."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from benchmarks.brokers.process import HOST, Broker, Launch, free_port

HOME = Path("/usr/share/activemq")

ACTIVEMQ_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
         http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="bench"
          dataDirectory="{directory}/data">
    <persistenceAdapter><kahaDB directory="{directory}/data/kahadb"/></persistenceAdapter>
    <transportConnectors>
      <transportConnector name="stomp" uri="{transport}://{host}:{port}?maximumConnections=20000"/>
      <transportConnector name="quick" uri="{transport}://{host}:{quick_port}?transport.tcpNoDelay=true"/>
    </transportConnectors>
  </broker>
</beans>
"""

# what Debian's start script passes for a Java after 8
OPENED = [
    "java.base/java.security",
    "java.base/java.net",
    "java.base/java.lang",
    "java.base/java.util",
    "java.naming/javax.naming.spi",
    "java.rmi/sun.rmi.transport.tcp",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
]


class ActiveMQ(Broker):
    """With KahaDB for persistent messages and the memory that Debian's options give it (512 MB).

    `ACTIVEMQ_TRANSPORT` names the connector's scheme: `stomp` (the default, a thread for each connection: the
    faster one when there are few) or `stomp+nio`. There is a second connector for latency: with the stock one
    Nagle's algorithm and delayed acknowledgements cost 40 ms at the 99th percentile, while under full
    load it is the faster one.
    """

    name: ClassVar[str] = "activemq"
    warm_seconds: ClassVar[float] = 5.0

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__(env)
        self._quick_port = free_port()

    @property
    def latency_port(self) -> int:
        return self._quick_port

    @classmethod
    def missing(cls) -> str | None:
        if not (HOME / "bin/activemq.jar").exists():
            return f"no {HOME / 'bin/activemq.jar'} (Debian package activemq)"
        return None if shutil.which("java") else "no java in the PATH"

    def version(self) -> str:
        with zipfile.ZipFile(HOME / "lib/activemq-broker.jar") as jar:
            manifest = jar.read("META-INF/MANIFEST.MF").decode()
        told = [
            line.split(":")[1].strip()
            for line in manifest.splitlines()
            if line.startswith(("Implementation-Version:", "Bundle-Version:"))
        ]
        return told[0] if told else "unknown"

    def prepare(self) -> Launch:
        conf = self.directory / "conf"
        conf.mkdir()
        (self.directory / "tmp").mkdir()
        (conf / "activemq.xml").write_text(
            ACTIVEMQ_XML.format(
                directory=self.directory,
                host=HOST,
                port=self.port,
                quick_port=self._quick_port,
                transport=os.environ.get("ACTIVEMQ_TRANSPORT", "stomp"),
            )
        )
        argv = ["java", "-Xms512M", "-Xmx512M", "-Dorg.apache.activemq.UseDedicatedTaskRunner=true"]
        for opened in OPENED:
            argv += ["--add-opens", f"{opened}=ALL-UNNAMED"]
        argv += [
            f"-Dactivemq.classpath={conf}",
            f"-Dactivemq.home={HOME}",
            f"-Dactivemq.base={self.directory}",
            f"-Dactivemq.conf={conf}",
            f"-Dactivemq.data={self.directory / 'data'}",
            f"-Djava.io.tmpdir={self.directory / 'tmp'}",
            "-jar",
            str(HOME / "bin/activemq.jar"),
            "start",
            f"xbean:file:{conf / 'activemq.xml'}",
        ]
        return Launch(argv)
