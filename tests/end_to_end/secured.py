"""A broker whose acceptors have all that there is of TLS and the PROXY protocol, and the certificates for it."""

import json
from urllib.request import Request, urlopen

from ..broker_process import PATIENCE, BrokerProcess
from ..certificates import Authority
from ..stomp_client import StompClient

PREFIXES = "anycastPrefix=/queue/;multicastPrefix=/topic/"
BROKER = f"keyStorePath=broker.pem;{PREFIXES}"

#: Acceptors by name.
URLS = {
    "plain": f"tcp://127.0.0.1:0?{PREFIXES}",
    "stomp": f"ssl://127.0.0.1:0?keyStorePath=broker.pem,names;{PREFIXES}",
    "artemis": f"tcp://127.0.0.1:0?sslEnabled=true;{BROKER};keyStoreType=PEM",
    "six": f"ssl://[::1]:0?{BROKER}",
    "elsewhere": f"ssl://127.0.0.1:0?keyStorePath=elsewhere.pem;{PREFIXES}",
    "expired": f"ssl://127.0.0.1:0?keyStorePath=expired.pem;{PREFIXES}",
    "stranger": f"ssl://127.0.0.1:0?keyStorePath=strangers/broker.pem;{PREFIXES}",
    "hidden": f"ssl://127.0.0.1:0?keyStorePath=hidden.pem;keyStorePassword=a%3Bb;{PREFIXES}",
    "need": f"ssl://127.0.0.1:0?{BROKER};trustStorePath=authority.pem;needClientAuth=true",
    "want": f"ssl://127.0.0.1:0?{BROKER};trustStorePath=authority.pem;wantClientAuth=true",
    "old": f"ssl://127.0.0.1:0?{BROKER};enabledProtocols=TLSv1.2",
    "new": f"ssl://127.0.0.1:0?{BROKER};enabledProtocols=TLSv1.3;"
    "enabledCipherSuites=TLS_CHACHA20_POLY1305_SHA256",
    "few": f"ssl://127.0.0.1:0?{BROKER};connectionsAllowed=1",
    "hurried": f"ssl://127.0.0.1:0?{BROKER};handshake-timeout=1",
    "proxy": f"tcp://127.0.0.1:0?proxyProtocolEnabled=true;{PREFIXES}",
    "proxy-tls": f"ssl://127.0.0.1:0?proxyProtocolEnabled=true;{BROKER}",
    "other-proxy": f"tcp://127.0.0.1:0?proxyProtocolEnabled=true;proxyProtocolTrusted=192.0.2.0/24;{PREFIXES}",
    "web": f"wss://127.0.0.1:0/stomp?{BROKER};trustStorePath=authority.pem;wantClientAuth=true",
    "web-proxy": f"wss://127.0.0.1:0/stomp?{BROKER};proxyProtocolEnabled=true",
    "http": "https://127.0.0.1:0?keyStorePath=broker.pem",
    "http-proxy": "https://127.0.0.1:0?keyStorePath=broker.pem;proxyProtocolEnabled=true",
    "http-plain": "http://127.0.0.1:0",
}


class Secured:
    """The files in one directory, and the broker that runs with them."""

    def __init__(self, directory, urls=None):
        self.directory = directory
        for name in ("names", "strangers"):
            (directory / name).mkdir()
        self.authority = Authority(directory)
        self.stranger = Authority(directory / "strangers", "stranger")
        issue = self.authority.issue
        issue("broker.pem")
        issue("elsewhere.pem", ("elsewhere.example",))
        issue("expired.pem", begin=-10, days=-1)
        issue("hidden.pem", password="a;b")
        issue("names/a.pem", ("a.example",), common="a", key_apart=True)
        issue("names/b.pem", ("*.b.example",), common="b")
        self.stranger.issue("broker.pem")
        self.anna = issue("anna.pem", common="anna", client=True)
        self.late = issue("late.pem", common="late", client=True, begin=-10, days=-1)
        self.early = issue("early.pem", common="early", client=True, begin=1, days=2)
        self.mallory = self.stranger.issue("mallory.pem", common="mallory", client=True)
        self.config = directory / "broker.xml"
        self.config.write_text(document(urls or URLS))
        self.trusting = self.authority.trusting()

    def start(self):
        """Not yet entered."""
        self.broker = BrokerProcess(self.config)
        return self.broker

    def open(self, acceptor="stomp", client=None, context=None, **more):
        """A dialogue over TLS, as somebody who shows the certificate ``client``."""
        if context is None:
            context = self.trusting if client is None else self.authority.trusting(client)
        return StompClient(self.broker.ports[acceptor], context=context, **more)

    def enter(self, acceptor="stomp", client=None, **more):
        """As `open`, and connected."""
        opened = self.open(acceptor, client, **more)
        opened.connect()
        return opened

    def get(self, path):
        """What the management API says about it."""
        url = f"https://localhost:{self.broker.ports['http']}{path}"
        with urlopen(Request(url), timeout=PATIENCE, context=self.trusting) as answer:
            text = answer.read().decode()
        return json.loads(text) if path.startswith("/api") else text

    def metric(self, name, value, label="acceptor"):
        """The value for one acceptor, or another label."""
        for line in self.get("/metrics").splitlines():
            if line.startswith(f'{name}{{{label}="{value}"'):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no {name} of {value}")


def document(urls):
    """A broker.xml with these acceptors."""
    acceptors = "\n".join(f'<acceptor name="{name}">{url}</acceptor>' for name, url in urls.items())
    setting = (
        "<auto-delete-queues>false</auto-delete-queues><auto-delete-addresses>false</auto-delete-addresses>"
        "<default-address-routing-type>ANYCAST</default-address-routing-type>"
        "<default-queue-routing-type>ANYCAST</default-queue-routing-type>"
    )
    full = "<max-size-messages>1</max-size-messages><address-full-policy>BLOCK</address-full-policy>"
    return f"""<configuration><core>
<security-enabled>false</security-enabled>
<acceptors>{acceptors}</acceptors>
<address-settings>
<address-setting match="#">{setting}</address-setting>
<address-setting match="full.#">{full}</address-setting>
</address-settings>
</core></configuration>"""
