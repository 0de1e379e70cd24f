"""Header lines: escaping, repetition, blanks and line ends, each by the rules of its version."""

import pytest


def echo(client, name, lines, eol=b"\n"):
    """What a subscriber of the same connection sees of a SEND with these header lines."""
    client.subscribe(f"/queue/{name}", ack="auto")
    client.raw(eol.join((b"SEND", b"destination:/queue/" + name.encode(), lines, b"", b"x\0")))
    return client.message("x")


@pytest.mark.parametrize(
    "version, wire, meaning",
    [
        ("1.0", b"h:a\\nb", "a\\nb"),
        ("1.0", b"h:a:b:c", "a:b:c"),
        ("1.0", b"h:\\q", "\\q"),
        ("1.1", b"h:a\\nb\\cc\\\\d", "a\nb:c\\d"),
        ("1.1", b"h:\\\\n", "\\n"),
        ("1.2", b"h:a\\nb\\cc\\\\d\\re", "a\nb:c\\d\re"),
        ("1.2", b"h:\\\\\\\\", "\\\\"),
        ("1.2", "h:zażółć gęślą jaźń €".encode(), "zażółć gęślą jaźń €"),
        ("1.2", b"h:", ""),
        ("1.1", b"h:  padded  ", "  padded  "),
        ("1.2", b"h:  padded  ", "  padded  "),
        ("1.0", b"h:  trimmed", "trimmed"),
        ("1.1", b"h:a:b", "a:b"),
    ],
)
def test_values_come_back_as_meant(connect, name, version, wire, meaning):
    assert echo(connect(version), name, wire)["h"] == meaning


@pytest.mark.parametrize("version, wire", [("1.1", b"a\\cb\\\\:v"), ("1.2", b"a\\cb\\\\:v")])
def test_names_are_escaped_too(connect, name, version, wire):
    assert echo(connect(version), name, wire)["a:b\\"] == "v"


def test_names_may_be_utf_8(connect, version, name):
    assert echo(connect(version), name, "größe €:ja".encode())["größe €"] == "ja"


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_the_first_of_repeated_headers_counts(connect, version, name):
    message = echo(connect(version), name, b"foo:first\nfoo:second\ndestination:/queue/elsewhere")
    assert message["foo"] == "first"
    assert [value for key, value in message.headers if key == "foo"] == ["first"]


def test_the_last_of_repeated_headers_counts_in_1_0(connect, name):
    assert echo(connect("1.0"), name, b"foo:first\nfoo:second")["foo"] == "second"


def test_1_2_takes_cr_lf_line_ends(connect, name):
    message = echo(connect("1.2"), name, b"a:1\r\nb:2", eol=b"\r\n")
    assert (message["a"], message["b"]) == ("1", "2")


def test_1_2_takes_mixed_line_ends(connect, name):
    client = connect("1.2")
    client.subscribe(f"/queue/{name}", ack="auto")
    client.raw(f"SEND\ndestination:/queue/{name}\r\na:1\n\r\nx\0\r\n\r\n".encode())
    assert client.message("x")["a"] == "1"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_opens_with_cr_lf_may_go_on_so(connect, version, name):
    client = connect(version, greet=False)
    client.raw(f"CONNECT\r\naccept-version:{version}\r\nhost:h\r\n\r\n\0\r\n".encode())
    client.expect("CONNECTED", version=version)
    assert echo(client, name, b"a:1", eol=b"\r\n")["a"] == "1"


@pytest.mark.parametrize(
    "version, line, words",
    [
        ("1.1", b"h:\\t", ["undefined escape", "h", "1.1"]),
        ("1.1", b"h:\\r", ["undefined escape", "h", "1.1"]),
        ("1.2", b"h:\\t", ["undefined escape", "h", "1.2"]),
        ("1.2", b"bad\\x:v", ["undefined escape", "1.2"]),
        ("1.2", b"h:trailing\\", ["backslash", "h"]),
        ("1.2", b"no colon here", ["no colon", "no colon here"]),
        ("1.2", b":no name", ["no name"]),
        ("1.0", b"no colon here", ["no colon"]),
        ("1.2", b"h:a\rb", ["carriage return"]),
    ],
)
def test_a_malformed_line_is_an_error_that_shows_it(client, version, line, words):
    client.raw(b"SEND\ndestination:/queue/x\n" + line + b"\n\nbody\0")
    client.error(*words)


@pytest.mark.parametrize("value", ["a:b", "a\\b", "a\nb", "a:b\\n\n:"])
def test_a_receipt_is_answered_as_it_was_asked(connect, value):
    client = connect("1.2")
    client.send("BEGIN", {"transaction": "t", "receipt": value})
    client.expect("RECEIPT", receipt_id=value)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_ids_with_special_characters_survive(client, version, name):
    client.subscribe(f"/queue/{name}:with\\odd", id="a:b\\c")
    client.put(f"/queue/{name}:with\\odd", "x")
    message = client.message("x")
    assert message["subscription"] == "a:b\\c"
    assert message["destination"] == f"/queue/{name}:with\\odd"
    client.answer("ACK", message)
    client.ask("UNSUBSCRIBE", {"id": "a:b\\c"})


def test_headers_cross_versions(connect, name):
    """What a 1.2 client escapes reaches a 1.1 client in 1.1's escapes, and a 1.0 client without any."""
    readers = {version: connect(version) for version in ("1.0", "1.1", "1.2")}
    for reader in readers.values():
        reader.subscribe(f"/topic/{name}", ack="auto")
    connect("1.2").put(f"/topic/{name}", "x", h="a:b\\c\nd")
    assert b"h:a\\cb\\\\c\\nd\n" in readers["1.2"].message().raw
    assert b"h:a\\cb\\\\c\\nd\n" in readers["1.1"].message().raw
    assert b"h:a:b\\c\\nd\n" in readers["1.0"].message().raw  # a line feed cannot be a part of a 1.0 header
    for reader in readers.values():
        reader.nothing()


def test_a_user_header_never_shadows_a_standard_one(client, version, name):
    client.subscribe(f"/queue/{name}", id="mine", ack="client-individual")
    forged = b"message-id:forged\nsubscription:forged\nredelivered:true\nack:forged\ntimestamp:0"
    client.raw(f"SEND\ndestination:/queue/{name}\n".encode() + forged + b"\n\nx\0")
    message = client.message("x")
    assert message["subscription"] == "mine"
    assert message["redelivered"] == "false"
    assert b"forged" not in message.raw
    client.answer("ACK", message)


def test_user_headers_come_back_untouched_and_in_order(connect, version, name):
    message = echo(
        connect(version),
        name,
        b"zeta:1\nalpha:2\nMixed-Case:3\nconsumerWindowSize:7\ntransformation:none\nJMSXGroupID:g",
    )
    ours = [pair for pair in message.headers if pair[0] in ("zeta", "alpha", "Mixed-Case", "JMSXGroupID")]
    assert ours == [("zeta", "1"), ("alpha", "2"), ("Mixed-Case", "3"), ("JMSXGroupID", "g")]
    assert message["consumerWindowSize"] == "7" and message["transformation"] == "none"


def test_standard_headers_come_back(connect, version, name):
    given = b"correlation-id:c\nreply-to:/queue/r\ntype:t\npriority:3\npersistent:true\ncontent-type:a/b"
    message = echo(connect(version), name, given)
    for line in given.decode().split("\n"):
        key, _, value = line.partition(":")
        assert message[key] == value


@pytest.mark.parametrize("header", ["correlation-id", "reply-to", "type", "content-type"])
def test_standard_headers_that_were_not_sent_do_not_come(connect, name, header):
    assert echo(connect(), name, b"other:1").get(header) is None


@pytest.mark.parametrize(
    "header, value, limit",
    [
        ("priority", "10", "0 to 9"),
        ("priority", "-1", "0 to 9"),
        ("priority", "high", "0 to 9"),
        ("priority", "", "0 to 9"),
        ("priority", "1_0", "0 to 9"),
        ("priority", "\u0661", "0 to 9"),
        ("AMQ_SCHEDULED_DELAY", "+1", "0 to"),
        ("AMQ_SCHEDULED_TIME", "1.0", "0 to"),
        ("AMQ_SCHEDULED_PERIOD", "1e3", "0 to"),
        ("AMQ_SCHEDULED_REPEAT", "0x1", "to"),
        ("expires", "soon", "0 to"),
        ("expires", "-5", "0 to"),
        ("expires", "9" * 30, "0 to"),
    ],
)
def test_bad_numbers_are_refused(client, version, header, value, limit):
    client.send("SEND", {"destination": "/queue/x", header: value, "receipt": "r"}, b"x")
    client.error(header, value, limit, receipt="r")
