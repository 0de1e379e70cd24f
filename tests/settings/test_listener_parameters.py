"""What the URL of an acceptor says about TLS and the PROXY protocol."""

from dataclasses import fields
from ipaddress import ip_network
from pathlib import Path

import pytest

from stompring.settings.model import TLS_VERSIONS, HttpAcceptor, ProxyProtocol, StompAcceptor, Tls
from stompring.settings.urls import (
    LISTENER_PARAMETERS,
    PROXY_PARAMETERS,
    TLS_PARAMETERS,
    parse_acceptor,
    with_absolute_paths,
)

from .documents import acceptor, faults, parse, takes
from .test_acceptor_url import faults as faults_of
from .test_settings_docs import tables

EVERY = (
    "keyStorePath=a.pem, certs ;keyPath=a.key,b.key;keyStorePassword=%3Bsecret;keyStoreType=pem;"
    "trustStorePath=ca.pem;trustStorePassword=secret;trustStoreType=PEM;"
    "needClientAuth=TRUE;wantClientAuth=true;"
    "enabledProtocols=tlsv1.3,TLSv1.2;enabledCipherSuites=TLS_AES_256_GCM_SHA384,ECDHE-RSA-AES128-GCM-SHA256;"
    "sslAutoReload=true"
)
ALL = Tls(
    key_store_path=("a.pem", "certs"),
    key_path=("a.key", "b.key"),
    key_store_password=";secret",
    trust_store_path="ca.pem",
    trust_store_password="secret",
    need_client_auth=True,
    want_client_auth=True,
    enabled_protocols=("TLSv1.3", "TLSv1.2"),
    enabled_cipher_suites=("TLS_AES_256_GCM_SHA384", "ECDHE-RSA-AES128-GCM-SHA256"),
    ssl_auto_reload=True,
)
CERTIFICATE = "keyStorePath=a.pem"


def tls(url):
    return parse_acceptor("x", url).tls


def test_every_parameter_sets_its_field():
    assert tls(f"ssl://h:1?{EVERY}") == ALL
    assert tls(f"https://h:1?{EVERY}") == ALL
    assert all(getattr(ALL, field.name) != field.default for field in fields(Tls))


@pytest.mark.parametrize("scheme", ["tcp", "http"])
def test_without_tls(scheme):
    assert tls(f"{scheme}://h:1") is tls(f"{scheme}://h:1?sslEnabled=false") is None


@pytest.mark.parametrize("scheme", ["tcp", "ssl", "http", "https"])
def test_by_the_parameter_of_artemis(scheme):
    assert tls(f"{scheme}://h:1?sslEnabled=true;{CERTIFICATE}") == Tls(("a.pem",))


@pytest.mark.parametrize("scheme", ["tcp", "ssl", "http", "https"])
def test_proxy_protocol(scheme):
    secure = f";{CERTIFICATE}" if scheme in ("ssl", "https") else ""
    found = parse_acceptor("x", f"{scheme}://h:1?proxyProtocolEnabled=true{secure}")
    assert found.proxy == ProxyProtocol()
    assert parse_acceptor("x", f"{scheme}://h:1?proxyProtocolEnabled=false{secure}").proxy is None


def test_trusted_proxies():
    found = parse_acceptor(
        "x", "tcp://h:1?proxyProtocolEnabled=true;proxyProtocolTrusted=10.0.0.7, fe80::/10"
    )
    assert found.proxy == ProxyProtocol((ip_network("10.0.0.7/32"), ip_network("fe80::/10")))


FAULTS = [
    ("ssl://h:1", "TLS requires keyStorePath: a PEM file or Java keystore"),
    ("https://h:1", "TLS requires keyStorePath: a PEM file or Java keystore"),
    ("tcp://h:1?sslEnabled=true", "TLS requires keyStorePath: a PEM file or Java keystore"),
    (f"ssl://h:1?sslEnabled=false;{CERTIFICATE}", "sslEnabled=false contradicts the URL"),
    (f"tcp://h:1?{CERTIFICATE}", "keyStorePath has no effect without TLS: use ssl:// or https://"),
    ("http://h:1?sslAutoReload=true", "sslAutoReload has no effect without TLS"),
    ("tcp://h:1?keyStoreType=PEM", "keyStoreType has no effect without TLS"),
    (
        f"ssl://h:1?{CERTIFICATE};keyStoreType=JCEKS",
        "'keyStoreType' is 'JCEKS': must be PEM, PKCS12 or JKS",
    ),
    (f"ssl://h:1?{CERTIFICATE};keyStoreType=PEMCFG", "'keyStoreType' is 'PEMCFG': must be PEM"),
    (f"ssl://h:1?{CERTIFICATE};trustStoreType=DKS", "'trustStoreType' is 'DKS': must be PEM, PKCS12 or JKS"),
    (
        f"ssl://h:1?{CERTIFICATE};keyPath=a,b",
        "keyPath lists 2 files and keyStorePath 1: each certificate needs one key",
    ),
    ("ssl://h:1?keyStorePath=a,,b", "must be a comma-separated list of files and directories"),
    (
        f"ssl://h:1?{CERTIFICATE};needClientAuth=true",
        "needClientAuth and wantClientAuth require trustStorePath",
    ),
    (
        f"ssl://h:1?{CERTIFICATE};wantClientAuth=true",
        "needClientAuth and wantClientAuth require trustStorePath",
    ),
    (f"ssl://h:1?{CERTIFICATE};trustStorePath=ca.pem", "trustStorePath has no effect without needClientAuth"),
    (f"ssl://h:1?{CERTIFICATE};enabledProtocols=TLSv1.1", "'TLSv1.1' is not one of TLSv1.2, TLSv1.3"),
    (f"ssl://h:1?{CERTIFICATE};enabledCipherSuites=ALL", "'ALL' is not the name of a cipher suite"),
    (f"ssl://h:1?{CERTIFICATE};enabledCipherSuites=A-B:C-D", "'A-B:C-D' is not the name of a cipher suite"),
    (f"ssl://h:1?{CERTIFICATE};keyStorePassword=", "parameter 'keyStorePassword': must not be empty"),
    (f"ssl://h:1?{CERTIFICATE};useDefaultSslContext=true", "set keyStorePath to a PEM file"),
    (f"ssl://h:1?{CERTIFICATE};trustAll=true", "must be signed by a CA in trustStorePath"),
    (f"ssl://h:1?{CERTIFICATE};crlPath=x", "revocation lists are not supported"),
    (f"ssl://h:1?{CERTIFICATE};sniHost=x", "keyStorePath may list several certificates"),
    (
        "tcp://h:1?proxyProtocolTrusted=10.0.0.1",
        "proxyProtocolTrusted has no effect without proxyProtocolEnabled",
    ),
    (
        "tcp://h:1?proxyProtocolEnabled=true;proxyProtocolTrusted=proxy.example",
        "must be addresses and networks",
    ),
    ("tcp://h:1?proxyProtocolEnabled=true;proxyProtocolTrusted=10.0.0.1/8", "has host bits set"),
]


@pytest.mark.parametrize("url, expected", FAULTS, ids=[row[0] for row in FAULTS])
def test_faults(url, expected):
    (found,) = faults_of(url)
    assert expected in found


def test_the_password_is_not_shown():
    assert "secret" not in repr(ALL)


def test_paths_begin_at_the_directory_of_the_file():
    url = f"ssl://127.0.0.1:1?{EVERY.replace('b.key', '/keys/b.key')}"
    (found,) = parse(acceptor(url), "<security-enabled>false</security-enabled>").stomp_acceptors
    assert found.tls.key_store_path == ("etc/a.pem", "etc/certs")
    assert found.tls.key_path == ("etc/a.key", "/keys/b.key")
    assert found.tls.trust_store_path == "etc/ca.pem"


def test_without_tls_there_are_no_paths():
    for one in (StompAcceptor("s", "h", 1), HttpAcceptor("h", "h", 1)):
        assert with_absolute_paths(one, Path("/x")) is one


def test_faults_are_reported_with_file_and_line():
    assert faults(acceptor("ssl://127.0.0.1:1?keyPath=b"), "<security-enabled>false</security-enabled>") == [
        "3: acceptor 'x': TLS requires keyStorePath: a PEM file or Java keystore with the broker's certificate and its "
        "chain"
    ]


# ---- docs/settings.md


@pytest.mark.parametrize(
    "column, parameters", [("TLS parameter", TLS_PARAMETERS), ("PROXY parameter", PROXY_PARAMETERS)]
)
def test_every_parameter_is_documented_and_nothing_else(column, parameters):
    rows = [row for row in tables("Acceptors") if column in row]
    assert [row[column].strip("`") for row in rows] == list(parameters)
    for row in rows:
        assert row["meaning"].endswith((".", ")."))
        assert row["source"].split(",")[0] in ("Artemis", "stompring")


def test_documented_defaults_and_ranges():
    for row in tables("Acceptors"):
        name = row.get("TLS parameter", row.get("PROXY parameter", "")).strip("`")
        if not name:
            continue
        read = LISTENER_PARAMETERS[name].read
        for text in ("true", "false", "PEM", "TLSv1.2", "TLSv1.3"):
            possible = text in row["values"].split(", ") or row["values"] == "a text"
            if row["values"] != "a comma list":
                assert takes(read, text) == possible, (name, text)
    documented = {
        row["TLS parameter"]: row["default"] for row in tables("Acceptors") if "TLS parameter" in row
    }
    assert documented["`enabledProtocols`"] == f"`{','.join(TLS_VERSIONS)}`"
