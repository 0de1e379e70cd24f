"""The files of certificates: renewed while a broker runs, and wrong when it starts; and how a broker over TLS ends."""

import shutil
import ssl
import subprocess
import time

import pytest

from ..broker_process import PATIENCE, ROOT, BrokerProcess
from ..stomp_client import StompClient
from .secured import PREFIXES, Secured
from .test_security import stompring

STOMP = (
    f"ssl://127.0.0.1:0?keyStorePath=broker.pem;trustStorePath=authority.pem;wantClientAuth=true;{PREFIXES}"
)
URLS = {"stomp": STOMP, "http": "https://127.0.0.1:0?keyStorePath=broker.pem"}


@pytest.fixture
def secured(tmp_path):
    return Secured(tmp_path, URLS)


def shown(secured):
    """The common name of the certificate that a new connection gets."""
    link = secured.open().socket
    certificate = link.getpeercert()
    link.close()
    return str(dict(part[0] for part in certificate["subject"])["commonName"])


def test_sighup_takes_new_files(secured):
    with secured.start() as broker:
        open_before = secured.enter()
        secured.authority.issue("broker.pem", common="second")
        assert shown(secured) == "broker"
        assert "reloaded from" in broker.reload()
        assert "certificate CN=second,O=Example for localhost" in broker.wait_for_log("CN=second")
        assert shown(secured) == "second"
        open_before.put("/queue/reload", "still")
        assert secured.get("/api/v1/queues/reload")["messageCount"] == 1
        assert "second" in secured.get("/metrics")


def test_a_broken_file_changes_nothing(secured):
    with secured.start() as broker:
        path = secured.directory / "broker.pem"
        text = path.read_bytes()
        path.write_bytes(text[:300])
        line = broker.reload()
        assert "cannot reload the configuration, keeping the current one" in line
        assert f"acceptor 'stomp': {path}: " in line
        assert shown(secured) == "broker"
        path.write_bytes(text)
        assert "reloaded from" in broker.reload()


def test_authorities_are_read_again(secured):
    with secured.start() as broker:
        with pytest.raises((ssl.SSLError, ConnectionResetError, AssertionError)):
            secured.enter(client=secured.mallory)
        shutil.copy(secured.stranger.file, secured.authority.file.with_name("new.pem"))
        secured.authority.file.write_bytes(
            secured.authority.file.read_bytes() + secured.stranger.file.read_bytes()
        )
        assert "reloaded from" in broker.reload()
        secured.enter(client=secured.mallory)
        secured.authority.file.write_bytes(secured.stranger.file.read_bytes())
        broker.reload()
        with pytest.raises((ssl.SSLError, ConnectionResetError, AssertionError)):
            secured.enter(context=trusting(secured, secured.anna))


def trusting(secured, client):
    context = secured.trusting
    context.load_cert_chain(client)
    return context


def test_files_are_taken_by_themselves(tmp_path):
    secured = Secured(tmp_path, {**URLS, "stomp": f"{STOMP};sslAutoReload=true"})
    with secured.start() as broker:
        secured.authority.issue("broker.pem", common="second")
        broker.wait_for_log("acceptor stomp: certificate CN=second")
        assert shown(secured) == "second"


def test_everybody_is_told_of_the_end(secured):
    with secured.start() as broker:
        clients = [secured.open() for _ in range(3)]
        for client in clients:
            client.connect()
        clients[0].put("/queue/end", *("x" * 1000 for _ in range(200)))
        clients[1].subscribe("/queue/end", ack="auto")
        silent = StompClient(broker.ports["stomp"])  # has not said a word of TLS
        while secured.get("/api/v1/queues/end")["messageCount"]:
            pass  # until all are on their way
        broker.terminate()
        for _ in range(200):
            clients[1].message("x" * 1000)
        for client in clients:
            client.error("shutting down")
        broker.stop()
        silent.close()


def test_who_does_not_read_does_not_hold_it_up(secured):
    with secured.start() as broker:
        sender, stuck = secured.open(), secured.open()
        sender.connect()
        stuck.connect()
        stuck.send("SUBSCRIBE", {"id": "1", "destination": "/queue/q"})
        sender.put("/queue/q", *(b"x" * 1_000_000 for _ in range(20)))
        broker.stop()


WRONG = [
    ("missing", "cannot be read: No such file or directory"),
    ("nonsense", "not a PEM file"),
    ("mismatch", "private key does not match the certificate in"),
]


@pytest.mark.parametrize("what, expected", WRONG)
def test_a_start_with_a_wrong_file_is_refused(secured, what, expected):
    path = secured.directory / "broker.pem"
    if what == "missing":
        path.unlink()
    elif what == "nonsense":
        path.write_text("nonsense")
    else:
        begin, end = b"-----BEGIN PRIVATE", (secured.directory / "elsewhere.pem").read_bytes()
        own = path.read_bytes()
        path.write_bytes(own[: own.index(begin)] + end[end.index(begin) :])
    data = str(secured.directory / "data")
    started = stompring("run", "--config", str(secured.config), "--data", data)
    for outcome in (started, stompring("check-config", str(secured.config))):
        assert outcome.returncode == 1
        told = outcome.stdout + outcome.stderr
        assert f"{secured.config}: acceptor 'stomp': {path}: {expected}" in told
        assert "Traceback" not in told


def test_check_config_tells_what_there_is(secured):
    secured.authority.issue("broker.pem", ("a.example",), days=10)
    checked = stompring("check-config", str(secured.config))
    assert checked.returncode == 0
    lines = checked.stdout.splitlines()
    assert "  STOMP on ssl://127.0.0.1:(any)" in lines
    assert "  HTTP on https://127.0.0.1:(any)" in lines
    (stomp,) = (line for line in lines if "acceptor stomp: " in line)
    assert stomp.startswith("  acceptor stomp: certificate CN=broker,O=Example for a.example, until 20")
    assert "acceptor 'stomp': certificate CN=broker,O=Example" in checked.stderr
    assert "expires in 9 days" in checked.stderr and "(warning)" in checked.stderr


def test_an_expired_certificate_is_a_warning(secured):
    secured.authority.issue("broker.pem", begin=-10, days=-1)
    with secured.start() as broker:
        assert "WARNING" in broker.wait_for_log("acceptor stomp: .* has expired")


def test_the_shipped_file_with_a_certificate_of_ones_own(tmp_path):
    """As config/tls.xml says that one is made."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    text = (ROOT / "config" / "tls.xml").read_text()
    command = (
        text.partition("    openssl req")[2].partition("\n\n")[0].replace("config/", "").replace("\\\n", " ")
    )
    subprocess.run(["openssl", "req", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    for place in ("0.0.0.0:61612", "127.0.0.1:8162"):
        text = text.replace(place, "127.0.0.1:0")
    config = tmp_path / "tls.xml"
    config.write_text(text.replace("<security-enabled>true", "<security-enabled>false"))
    with BrokerProcess(config) as broker:
        context = ssl.create_default_context(cafile=str(tmp_path / "broker.pem"))
        client = StompClient(broker.ports["stomp"], context=context)
        client.connect()
        client.put("/queue/q", "x")
        began = time.monotonic()
        client.send("DISCONNECT", {"receipt": "1"})
        client.expect("RECEIPT")
        client.closed()
        assert time.monotonic() - began < PATIENCE
