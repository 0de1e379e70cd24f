"""Bodies: by length, by NUL, with anything in them (STOMP 1.2, "Body" and "Header content-length")."""

import pytest

BODIES = [
    b"",
    b"x",
    b"\0",
    b"\0\0\0\0",
    b"a\0b",
    b"\x01\x00\x00\x04",
    b"\n\n\n",
    b"\r\n\r\n",
    b"ends in line feed\n",
    bytes(range(256)) * 16,
    "zażółć gęślą jaźń 日本語 🐢".encode(),
    b"SEND\ndestination:/queue/smuggled\n\nnot a frame\0",
]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_with_content_length_comes_back(client, version, name, body):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.send("SEND", {"destination": f"/queue/{name}", "content-length": len(body)}, body)
    assert client.message(body)["content-length"] == str(len(body))


@pytest.mark.parametrize("body", [body for body in BODIES if b"\0" not in body])
def test_a_body_without_content_length_comes_back(client, version, name, body):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.send("SEND", {"destination": f"/queue/{name}"}, body)
    assert client.message(body)["content-length"] == str(len(body))


def test_without_content_length_the_body_ends_at_the_first_nul(client, version, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.raw(f"SEND\ndestination:/queue/{name}\n\nfirst\0\n\n".encode())
    client.message("first")
    client.nothing()


@pytest.mark.parametrize("length, body", [("2", b"four"), ("5", b"four\0more\0"), ("0", b"x")])
def test_a_wrong_content_length_is_an_error(client, version, length, body):
    client.send("SEND", {"destination": "/queue/x", "content-length": length}, body)
    client.error("content-length", length)


@pytest.mark.parametrize("length", ["four", "-1", "1.5", "0x10", "", "+3"])
def test_a_content_length_that_is_no_number_is_an_error(client, version, length):
    client.send("SEND", {"destination": "/queue/x", "content-length": length}, b"body")
    client.error("content-length", length)


@pytest.mark.every_carrier
def test_a_body_of_a_megabyte_in_odd_pieces(connect, version, name):
    body = bytes(range(251)) * 4178
    client = connect(version)
    client.subscribe(f"/queue/{name}", ack="auto")
    whole = f"SEND\ndestination:/queue/{name}\ncontent-length:{len(body)}\n\n".encode() + body + b"\0"
    for at in range(0, len(whole), 65521):
        client.raw(whole[at : at + 65521])
    client.message(body)
