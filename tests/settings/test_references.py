"""``${env:…}`` and ``${file:…}``: what they stand for, and that it is not shown."""

import pytest

from stompring.errors import ConfigurationError
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.document import HIDDEN, MAX_FILE_BYTES, References, Secret, hidden, revealed
from stompring.settings.urls import parse_acceptor

SECRET = "s3cret;with&odd<chars>%41"


@pytest.fixture
def references(tmp_path):
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "two").write_text("line\n\n")
    (tmp_path / "crlf").write_bytes(b"line\r\n")
    (tmp_path / "bare").write_text("bare")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "long").write_text("x" * (MAX_FILE_BYTES + 1))
    environment = {"NAME": SECRET, "EMPTY": "", "NA_ME": "value of NA_ME"}
    return References(tmp_path, environment, {"predefined": "by the start", "na.me": "less than a variable"})


@pytest.mark.parametrize(
    "text, value",
    [
        ("plain", "plain"),
        ("$5 {x} }", "$5 {x} }"),
        ("${env:NAME}", SECRET),
        ("a${env:NAME}b${env:EMPTY}c", f"a{SECRET}bc"),
        ("${file:secret}", SECRET),
        ("${file:two}", "line\n"),  # one line end is the editor's, another is meant
        ("${file:crlf}", "line"),
        ("${file:./bare}", "bare"),
        ("${NAME}", SECRET),
        ("${na.me:x}", "value of NA_ME"),
        ("${missing:}", ""),
        ("${missing:x}", "x"),
        ("${missing:tcp://h:1?a=b}", "tcp://h:1?a=b"),
        ("${env:MISSING:x:y}", "x:y"),
        ("${env:EMPTY:x}", ""),
        ("${predefined:x}", "by the start"),
        ("$${env:NAME}", "${env:NAME}"),
        ("$$${env:NAME}", "$${env:NAME}"),
    ],
)
def test_references_are_resolved(references, text, value):
    assert references.resolve(text) == value


@pytest.mark.parametrize(
    "text, fault",
    [
        ("${env:MISSING}", "environment variable MISSING is not set"),
        ("${file:missing}", "missing: No such file"),
        ("${file:binary}", "binary is not UTF-8 text"),
        ("${file:long}", "is longer than 65536 bytes"),
        ("${file:.}", "cannot read file"),
        ("${file:a\0b}", "cannot read file"),
        ("${env:}", "'${env:}' is not a reference"),
        ("${file}", "'${file}' is not a reference: use ${env:NAME}, ${file:PATH} or ${property:default}"),
        ("${}", "is not a reference"),
        ("${:x}", "is not a reference"),
        (
            "${a.b-c}",
            "property a.b-c is not set: set the environment variable A_B_C, or write a default, ${a.b-c:def",
        ),
        ("a${env:NAME", "has no closing '}'"),
    ],
)
def test_references_without_a_value_are_rejected(references, text, fault):
    with pytest.raises(ValueError) as raised:
        references.resolve(text)
    assert fault in str(raised.value) and SECRET not in str(raised.value)


def configured(tmp_path, inside):
    path = tmp_path / "broker.xml"
    path.write_text(f"<configuration><core>\n{inside}\n</core></configuration>")
    return read_broker_xml(path)


def test_in_every_kind_of_value(tmp_path, monkeypatch):
    monkeypatch.setenv("SIZE", "10MB")
    monkeypatch.setenv("PORT", "0")
    monkeypatch.setenv("PREFIX", "/q;x&/")
    (tmp_path / "name").write_text("broker <7>\n")
    found = configured(
        tmp_path,
        """<security-enabled>false</security-enabled><name>${file:name}</name>
        <global-max-size>${env:SIZE}</global-max-size>
        <acceptors><acceptor name="s">tcp://127.0.0.1:${env:PORT}?anycastPrefix=${env:PREFIX}</acceptor></acceptors>
        <broker-plugins><broker-plugin name="p"><property key="k" value="${file:name}"/></broker-plugin>
        </broker-plugins>
        <addresses><address name="a"><anycast><queue name="q"><filter string="x = '${y}'"/></queue>
        <queue name="r"><filter string="x = '${no.such:1}'"/></queue></anycast></address></addresses>""",
    )
    assert found.name == "broker <7>" and found.global_max_size == 10 * 1024 * 1024
    (acceptor,) = found.stomp_acceptors
    assert (acceptor.port, acceptor.anycast_prefix) == (0, ("/q;x&/",)), (
        "put in when parameters are told apart"
    )
    assert found.addresses[0].queues[0].filter == "x = '${y}'", "which means nothing there"
    assert found.addresses[0].queues[1].filter == "x = '1'"
    value = found.plugins[0].properties[0].value
    assert revealed(value) == "broker <7>" == value and "broker" not in repr(found.plugins)


@pytest.mark.parametrize(
    "inside",
    [
        "<global-max-size>${env:VALUE}</global-max-size>",
        "<security-enabled>${env:VALUE}</security-enabled>",
        '<acceptors><acceptor name="s">tcp://127.0.0.1:0?connectionTtl=${env:VALUE}</acceptor></acceptors>',
        '<acceptors><acceptor name="s">tcp://127.0.0.1:0?${env:VALUE}</acceptor></acceptors>',
        '<addresses><address name="a"><anycast><queue name="q"><filter string="${env:VALUE}"/></queue></anycast>'
        "</address></addresses>",
        '<address-settings><address-setting match="a"><min-expiry-delay>${env:VALUE}</min-expiry-delay>'
        "</address-setting></address-settings>",
        '<addresses><address name="${env:VALUE}"/><address name="${env:VALUE}"/></addresses>',
    ],
)
def test_a_value_that_is_wrong_is_not_shown(tmp_path, monkeypatch, inside):
    monkeypatch.setenv("VALUE", "s3cret marker")
    with pytest.raises(ConfigurationError) as raised:
        configured(tmp_path, inside)
    assert "s3cret" not in str(raised.value) and "${env:VALUE}" in str(raised.value)
    assert f"{tmp_path / 'broker.xml'}:2: " in str(raised.value)


def test_properties_of_an_artemis_instance_are_predefined(tmp_path):
    (tmp_path / "etc").mkdir()
    path = tmp_path / "etc" / "broker.xml"
    path.write_text(
        "<configuration><core><security-enabled>false</security-enabled>"
        "<journal-directory>${data.dir:x}/journal</journal-directory>"
        "<paging-directory>${artemis.instance}/pages</paging-directory></core></configuration>"
    )
    found = read_broker_xml(path)
    assert found.journal_directory == f"{tmp_path}/data/journal"
    assert found.paging_directory == f"{tmp_path}/pages"


@pytest.mark.parametrize("character", ["\0", "\x1b", "\uffff"])
def test_characters_that_no_document_can_hold(tmp_path, character):
    (tmp_path / "odd").write_text(f"s3cret{character}")
    with pytest.raises(
        ConfigurationError, match=":2: <name>: the value of the reference contains a control character"
    ):
        configured(tmp_path, "<name>${file:odd}</name>")


def test_resolved_url_is_not_shown_in_faults(tmp_path, monkeypatch):
    monkeypatch.setenv("VALUE", "s3cret")
    for place in ("${env:VALUE}://127.0.0.1:1", "tcp://127.0.0.1:${env:VALUE}", "tcp://${env:VALUE}"):
        with pytest.raises(ConfigurationError, match="does not resolve to a listener URL") as raised:
            configured(tmp_path, f'<acceptors><acceptor name="s">{place}</acceptor></acceptors>')
        assert "s3cret" not in str(raised.value)


def test_missing_reference_is_reported_with_its_line(tmp_path):
    fault = "broker.xml:3: <name>: environment variable NO_SUCH_THING is not set$"
    with pytest.raises(ConfigurationError, match=fault):
        configured(tmp_path, "\n<name>${env:NO_SUCH_THING}</name>")


def test_parameters_that_are_passwords_are_not_shown():
    url = "ssl://127.0.0.1:0?keyStorePath=a.pem;keyStorePassword=${x}"
    acceptor = parse_acceptor("s", url, lambda text: text.replace("${x}", SECRET))
    assert acceptor.tls.key_store_password == SECRET
    assert SECRET not in repr(acceptor)


def test_a_secret_is_itself_for_who_uses_it_and_hidden_from_who_shows_it():
    secret = Secret("abc")
    assert secret == "abc" and secret.encode() == b"abc" and {secret: 1}["abc"] == 1
    shown = (
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r:>5}".strip(),
        "{}".format(secret),  # noqa: UP032
        f"{[secret]}"[1:-1],
    )
    assert set(shown) == {HIDDEN}
    assert revealed(secret) == "abc" and type(revealed(secret)) is str
    assert hidden({"a": [secret, ("x", secret)], "n": 1}) == {"a": ["***", ["x", "***"]], "n": 1}
