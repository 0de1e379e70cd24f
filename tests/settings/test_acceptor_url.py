"""The URLs of acceptors: hosts, ports, parameters and their faults."""

import pytest

from stompring.settings.model import HttpAcceptor, StompAcceptor, WebSocketSettings
from stompring.settings.urls import OLD_PARAMETER_NAMES, STOMP_PARAMETERS, parse_acceptor

BASE = "tcp://127.0.0.1:61613"


def stomp(query):
    acceptor = parse_acceptor("x", f"{BASE}?{query}")
    assert isinstance(acceptor, StompAcceptor)
    return acceptor


def faults(url):
    with pytest.raises(ValueError) as caught:
        parse_acceptor("x", url)
    return str(caught.value).splitlines()


def test_without_parameters_the_defaults_hold():
    assert parse_acceptor("x", BASE) == StompAcceptor("x", "127.0.0.1", 61613)
    assert parse_acceptor("x", BASE + "?") == StompAcceptor("x", "127.0.0.1", 61613)
    assert parse_acceptor("h", "http://127.0.0.1:8161/") == HttpAcceptor("h", "127.0.0.1", 8161)


@pytest.mark.parametrize(
    "url, host, port",
    [
        ("tcp://localhost:0", "localhost", 0),
        ("tcp://[::1]:61613", "::1", 61613),
        ("tcp://0.0.0.0:65535/", "0.0.0.0", 65535),
        ("TCP://broker.example:1", "broker.example", 1),
    ],
)
def test_hosts_and_ports(url, host, port):
    acceptor = parse_acceptor("x", url)
    assert (acceptor.host, acceptor.port) == (host, port)


@pytest.mark.parametrize(
    "url, path",
    [
        ("ws://[::1]:61614", ""),
        ("ws://[::1]:61614/?", ""),
        ("ws://[::1]:61614/stomp/?maxHeaders=7", "/stomp"),
    ],
)
def test_a_websocket_url_may_have_a_path(url, path):
    acceptor = parse_acceptor("x", url)
    assert isinstance(acceptor, StompAcceptor)
    assert (acceptor.host, acceptor.port) == ("::1", 61614)
    assert acceptor.websocket == WebSocketSettings(only=True, path=path)
    assert acceptor.limits.max_headers == (7 if "7" in url else 1000)


EVERY = {
    "anycastPrefix": ("/queue/,queue/", ("/queue/", "queue/")),
    "multicastPrefix": ("/topic/", ("/topic/",)),
    "connectionTtl": ("5000", 5000),
    "connectionTtlMin": ("2000", 2000),
    "connectionTtlMax": ("9000", 9000),
    "heartBeatToConnectionTtlModifier": ("1.5", 1.5),
    "handshake-timeout": ("3", 3),
    "connectionsAllowed": ("7", 7),
    "connectionsAllowedPerHost": ("2", 2),
    "maxTransactionBytes": ("1M", 1024 * 1024),
    "maxUnsettledMessages": ("9", 9),
    "outboxSize": ("64K", 65536),
    "subscriptionsAllowed": ("8", 8),
    "transactionsAllowed": ("-1", -1),
    "stompConsumerWindowSize": ("10K", 10240),
    "stompPrefetchCount": ("50", 50),
    "disableStompServerHeader": ("TRUE", True),
    "maxBodyLength": ("1MB", 1048576),
    "maxHeaders": ("10", 10),
    "maxHeaderLength": ("8K", 8192),
    "webSocketUpgrade": ("false", False),
    "webSocketMaxFramePayloadLength": ("64K", 65536),
    "webSocketEncoderType": ("TEXT", "text"),
    "webSocketCompressionSupported": ("true", True),
    "webSocketAllowedOrigins": ("https://A.example:443, null", ("https://a.example", "null")),
}


@pytest.mark.parametrize("separator", [";", "&"])
def test_every_parameter_sets_its_field(separator):
    assert set(EVERY) == set(STOMP_PARAMETERS)
    acceptor = stomp(separator.join(f"{name}={text}" for name, (text, _) in EVERY.items()))
    for name, (_, value) in EVERY.items():
        parameter = STOMP_PARAMETERS[name]
        found = getattr(getattr(acceptor, parameter.part) if parameter.part else acceptor, parameter.field)
        assert found == value and type(found) is type(value), name


def test_values_may_be_percent_encoded():
    assert stomp("anycastPrefix=%2Fqueue%2F%2Cq%3B").anycast_prefix == ("/queue/", "q;")


def test_parameters_may_stand_on_lines_of_their_own():
    assert stomp("\n  maxHeaders=10;\n\tanycastPrefix = /queue/, q/ ;\n") == stomp(
        "maxHeaders=10;anycastPrefix=/queue/,q/"
    )


def test_protocols_must_include_stomp():
    assert (
        stomp("protocols=STOMP")
        == stomp("protocols=core, stomp,AMQP")
        == stomp("protocol=STOMP")
        == stomp("")
    )
    assert faults(f"{BASE}?protocols=AMQP,CORE") == [
        "parameter 'protocols' is 'AMQP,CORE': must include STOMP, the only supported protocol"
    ]
    assert "must be a comma-separated list of" in faults(f"{BASE}?protocols=STOMP,SMTP")[0]


def test_a_window_of_artemis_has_no_limit_in_messages():
    assert stomp("").stomp_prefetch_count == 100
    assert stomp("stompConsumerCredits=1000000").stomp_prefetch_count == -1
    assert stomp("stompConsumerWindowSize=1000000;stompPrefetchCount=7").stomp_prefetch_count == 7


def test_old_names_are_accepted():
    assert stomp("stompConsumerCredits=77").stomp_consumer_window_size == 77
    assert stomp("stompMaxFramePayloadLength=5").websocket.web_socket_max_frame_payload_length == 5
    assert set(OLD_PARAMETER_NAMES.values()) <= {*STOMP_PARAMETERS, "protocols"}


FAULTS = [
    ("127.0.0.1:61613", "'127.0.0.1:61613' is not a listener URL; it must start with tcp://"),
    ("", "is not a listener URL"),
    (
        "stomp+ssl://127.0.0.1:61612",
        "stomp+ssl:// (the scheme of clients for ssl) is not supported",
    ),
    ("ssl://127.0.0.1", "the URL has no port: write ssl://127.0.0.1:61612"),
    ("https://localhost:", "the URL has no port: write https://localhost:8162"),
    ("ws://127.0.0.1/stomp", "the URL has no port: write ws://127.0.0.1:61614"),
    ("ws://user@127.0.0.1:61614/stomp", "must be ws://host:port/path?parameters, without user or '#'"),
    ("ws://127.0.0.1:61614/stomp#x", "must be ws://host:port/path?parameters, without user or '#'"),
    ("ws://127.0.0.1:61614?webSocketUpgrade=false", "webSocketUpgrade=false contradicts ws://"),
    ("amqp://127.0.0.1:5672", "is not a listener URL; it must start with tcp://"),
    ("tcp://:61613", "the URL has no host: use 127.0.0.1, or 0.0.0.0 for all interfaces"),
    ("tcp://127.0.0.1", "the URL has no port: write tcp://127.0.0.1:61613"),
    ("http://localhost:", "the URL has no port: write http://localhost:8161"),
    ("tcp://127.0.0.1:65536", "the port must be a number from 0 to 65535"),
    ("tcp://127.0.0.1:stomp", "the port must be a number from 0 to 65535"),
    ("tcp://[::1:61613", "not a URL"),
    ("tcp://[nonsense]:61613", "not a URL"),
    ("tcp://user:secret@127.0.0.1:61613", "without path, user or '#'"),
    ("tcp://127.0.0.1:61613/stomp", "without path, user or '#'"),
    ("tcp://127.0.0.1 :61613", "must not contain spaces"),
    (
        "http://127.0.0.1:8161?maxHeaders=3",
        "an http acceptor accepts parameters of TLS and of the PROXY protocol only, not 'maxHeaders'",
    ),
    ("http://127.0.0.1:8161?protocols=STOMP", "only, not 'protocols'"),
    ("http://127.0.0.1:8161?proxyProtocolEnable=true", "did you mean 'proxyProtocolEnabled'?"),
    (f"{BASE}?anycastPrefx=/queue/", "unknown parameter 'anycastPrefx'; did you mean 'anycastPrefix'?"),
    (f"{BASE}?handshakeTimeout=3", "did you mean 'handshake-timeout'?"),
    (f"{BASE}?webSocketEncoderType=utf8", "must be binary or text"),
    (
        f"{BASE}?webSocketAllowedOrigins=app.example.com",
        "must be a comma-separated list of origins, for example https:",
    ),
    (f"{BASE}?webSocketAllowedOrigins=https://a/app", "must be a comma-separated list of origins"),
    (f"{BASE}?webSocketAllowedOrigins=http://a,http://A:80", "contains an origin twice"),
    (f"{BASE}?webSocketAllowedOrigins=*,null", "contains *, which means all origins, and others"),
    (
        f"{BASE}?securityDomain=other",
        "parameter 'securityDomain' is an Artemis setting without support in stompring: all acceptors have",
    ),
    (f"{BASE}?autoStart=false", "remove the acceptor"),
    (f"{BASE}?connectionTtl", "'connectionTtl' is not a parameter: write name=value"),
    (f"{BASE}?connectionTtl=0", "parameter 'connectionTtl' is '0': must be at least 1"),
    (f"{BASE}?connectionTtl=1;connectionTtl=2", "parameter 'connectionTtl' is given twice"),
    (f"{BASE}?stompConsumerCredits=1;stompConsumerWindowSize=2", "'stompConsumerWindowSize' is given twice"),
    (f"{BASE}?connectionTtlMin=5;connectionTtlMax=4", "connectionTtlMin (5) is above connectionTtlMax (4)"),
    (f"{BASE}?connectionTtlMax=999", "connectionTtlMin (1000) is above connectionTtlMax (999)"),
    (
        f"{BASE}?heartBeatToConnectionTtlModifier=0.5",
        "the broker would disconnect clients whose heart-beats are on time",
    ),
    (
        f"{BASE}?stompPrefetchCount=0",
        "must be -1 (no limit) or at least 1; with 0 no message would be delivered",
    ),
    (f"{BASE}?anycastPrefix=/queue/,,q/", "must be a comma-separated list of prefixes"),
    (f"{BASE}?anycastPrefix=a/,a/", "contains a prefix twice"),
    (f"{BASE}?anycastPrefix=a/;multicastPrefix=b/,a/", "'a/' is both an anycastPrefix and a multicastPrefix"),
]


@pytest.mark.parametrize("url, expected", FAULTS, ids=[row[0] for row in FAULTS])
def test_faults(url, expected):
    found = faults(url)
    assert len(found) == 1
    assert expected in found[0]


def test_all_faults_of_a_url_are_reported():
    assert len(faults(f"{BASE}?connectionTtl=x;maxHeaders=0;nonsense=1;router=r")) == 4
