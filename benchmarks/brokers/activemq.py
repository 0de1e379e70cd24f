"""ActiveMQ Classic from Debian's package, with STOMP connectors. The benchmark starts its jar directly."""

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

# packages that Debian's start script opens for a Java after 8
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
    """ActiveMQ Classic with KahaDB for persistent messages, and the memory of Debian's options (512 MB).

    `ACTIVEMQ_TRANSPORT` names the scheme of the connector: `stomp` (the default, with a thread for each connection,
    which is faster with few connections) or `stomp+nio`. Latency has a second connector: in the default one Nagle's
    algorithm and delayed acknowledgements cost 40 ms at the 99th percentile, but it is faster under full load.
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
