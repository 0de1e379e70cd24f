"""``<ha-policy><replicated-log …/>``: its attributes, and what it cannot be."""

import socket
from pathlib import Path

import pytest

from stompring.server.reload import changed_values, restart_required
from stompring.settings.document import revealed
from stompring.settings.model import ReplicatedLogSettings

from .documents import FILE, faults, parse

NATS = 'url="nats://n1:4222,n2:4222,n3:4222" stream="orders"'
TLS = 'url="tls://n1:4222" stream="orders"'
POSTGRESQL = 'url="postgresql://p1:5432,p2/stompring?target_session_attrs=read-write" stream="orders"'


def policy(attributes=NATS):
    return f"<ha-policy><replicated-log {attributes}/></ha-policy>"


def settings(attributes):
    found = parse(policy(attributes)).replicated_log
    assert found is not None
    return found


def test_without_the_element_there_is_no_log():
    assert parse().replicated_log is None
    assert parse("<ha-policy/>").replicated_log is None


def test_defaults():
    found = settings(NATS)
    assert (found.url, found.stream) == ("nats://n1:4222,n2:4222,n3:4222", "orders")
    assert found == ReplicatedLogSettings(found.url, "orders", broker=found.broker)
    assert found.takeover_timeout == 3000 and not found.confirmed_sync and found.monitor is None


def test_broker_is_by_default_its_name_and_the_machine():
    found = parse("<name>my orders</name>", policy()).replicated_log
    assert found.broker == f"my-orders@{socket.gethostname()}"
    assert settings(f'{NATS} broker="b1"').broker == "b1"


def test_all_attributes(tmp_path, monkeypatch):
    monkeypatch.setenv("NATS_PASSWORD", "over the hills")
    found = settings(
        f'{TLS} user="u" password="${{env:NATS_PASSWORD}}" ca="ca.pem" certificate="/c.pem" key="k.pem" '
        'monitor="http://n1:8222,http://n2:8222" takeover-timeout="4500" confirmed-sync="TRUE"'
    )
    assert found.user == "u" and found.password is not None
    assert revealed(found.password) == "over the hills" and "hills" not in repr(found)
    folder = Path(FILE).parent
    assert (found.ca, found.certificate, found.key) == (
        str(folder / "ca.pem"),
        "/c.pem",
        str(folder / "k.pem"),
    )
    assert found.takeover_timeout == 4500 and found.confirmed_sync
    assert settings(f'{TLS} credentials="n.creds"').credentials == str(folder / "n.creds")


def test_a_plain_password_is_hidden_too():
    assert "hills" not in repr(settings(f'{NATS} user="u" password="hills"'))


@pytest.mark.parametrize(
    "url",
    [
        "nats://127.0.0.1:4222",
        "nats://a",
        "nats://a,b?monitor=http://a:8222,http://b:8222",
        "nats://a?monitor=",
        "nats://a?monitor=8333",
        "nats://a:1,nats://b:2",
        "tls://[::1]:4222,b.example.org:4222",
        "postgresql://a/db",
        "postgres://a:5432,b:5433/db?sslmode=verify-full",
    ],
)
def test_urls(url):
    expected = url.replace(",nats://", ",")
    assert settings(f'url="{url}" stream="s"').url == expected


URL_FAULTS = [
    ("kafka://a:9092", "scheme kafka:// is unknown"),
    ("a:4222", "it has no scheme"),
    ("nats://", "must have a host in each comma-separated part"),
    ("nats://a:4222,", "must have a host in each comma-separated part"),
    ("nats://a:70000", "'70000' is none"),
    ("nats://a:x", "'x' is none"),
    ("nats://a b", "must not contain spaces"),
    ("nats://a,tls://b", "must have one scheme"),
    ("nats://a/path", "without a path"),
    ("nats://a?tls=1", "without parameters"),
    ("nats://[::z]:1", "must have a host"),
    ("postgresql://a/db,postgresql://b/db", "must be one URL"),
    ("nats://u:hills@a", "must not contain a user or a password"),
    ("nats://a,u:hills@b", "must not contain a user or a password"),
    ("postgresql://u:hills@a/db", "must not contain a user or a password"),
    ("postgresql://a/db?password=hills", "must not contain a user or a password"),
    ("", "must begin with nats://"),
]


@pytest.mark.parametrize("url, expected", URL_FAULTS, ids=[row[0] for row in URL_FAULTS])
def test_wrong_urls_are_refused_without_showing_a_password(url, expected):
    (found,) = faults(policy(f'url="{url}" stream="s"'))
    assert found.startswith("3: url of <replicated-log> is '") and expected in found
    assert "hills" not in found


CONTRADICTIONS = [
    ('stream="s"', "<replicated-log> has no attribute 'url'; it is required"),
    ('url="nats://a"', "<replicated-log> has no attribute 'stream'; it is required"),
    ('url="nats://a" stream="a.b"', "stream of <replicated-log> is 'a.b': must consist of 1 to 48 letters"),
    ('url="nats://a" stream="a b"', "stream of <replicated-log> is 'a b': must consist"),
    (f'url="nats://a" stream="{"x" * 49}"', "must consist of 1 to 48"),
    (f'{NATS} broker="b*"', "broker of <replicated-log> is 'b*': must consist of 1 to 200"),
    (f'{NATS} takeover-timeout="1999"', "must be at least 2000; with less, one late beat"),
    (f'{NATS} takeover-timeout="3s"', "must be a plain number of milliseconds"),
    (f'{NATS} monitor="n1:8222"', "must be http://host:8222"),
    (f'{NATS} user="u" password="p" credentials="c"', "it has password and credentials: keep one of them"),
    (f'{NATS} user="u" credentials="c"', "it has user and credentials: keep one of them"),
    (f'{NATS} password="p"', "it has a password and no user"),
    (f'{NATS} user="u" password="ENC(x)"', "password is encoded, and the key is Artemis's"),
    (f'{TLS} key="k"', "it has a key and no certificate"),
    (f'{NATS} ca="c"', "ca has no effect without TLS: write tls:// in the url"),
    (f'{POSTGRESQL} credentials="c"', "credentials is of NATS, and the url is of PostgreSQL"),
    (f'{POSTGRESQL} monitor="http://a:1"', "monitor is of NATS, and the url is of PostgreSQL"),
    (f'{NATS} passwd="p"', "unknown attribute 'passwd' of <replicated-log>; did you mean 'password'?"),
    (f'{NATS} user="u" password="${{env:NO_SUCH_NAME}}"', "environment variable NO_SUCH_NAME is not set"),
]


@pytest.mark.parametrize("attributes, expected", CONTRADICTIONS, ids=[row[1] for row in CONTRADICTIONS])
def test_contradictions_are_reported(attributes, expected):
    (found,) = faults(policy(attributes))
    assert found.startswith("3: ") and expected in found


@pytest.mark.parametrize(
    "element", ["persistence-enabled", "journal-sync-transactional", "journal-sync-non-transactional"]
)
def test_a_log_requires_synced_messages(element):
    (found,) = faults(policy(), f"<{element}>false</{element}>")
    assert found.startswith(f"4: <{element}> is false: with <replicated-log> (line 3) it must be true")
    assert parse(policy(), f"<{element}>true</{element}>").replicated_log is not None


def test_text_in_the_element_is_refused():
    (found,) = faults(f"<ha-policy><replicated-log {NATS}>nats://a</replicated-log></ha-policy>")
    assert "unexpected text 'nats://a' in <replicated-log>" in found


@pytest.mark.parametrize("other", ["<shared-store><primary/></shared-store>", "<live-only/>"])
def test_a_policy_of_artemis_beside_the_log_is_refused(other):
    name = other.partition(">")[0].strip("</>")
    (found,) = faults(f"<ha-policy><replicated-log {NATS}/>{other}</ha-policy>")
    assert found == f"3: <ha-policy> has <replicated-log> and Artemis's <{name}>: keep <replicated-log> alone"


def test_two_logs_are_refused():
    (found,) = faults(f"<ha-policy><replicated-log {NATS}/>\n<replicated-log {NATS}/></ha-policy>")
    assert found == "4: <replicated-log> is given twice in <ha-policy>; the first is at line 3"


def test_a_change_requires_a_restart_and_shows_no_password():
    before, after = parse(policy()), parse(policy(f'{NATS} user="u" password="hills"'))
    assert list(restart_required(before, after)) == ["<ha-policy>"]
    assert list(restart_required(before, before)) == []
    (change,) = changed_values(before, before, after, [])
    assert change.restart and change.setting == "ha-policy" and "hills" not in repr(change)
