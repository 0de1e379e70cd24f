"""Documents that are made to be dear, or to look into other files, through ``stompring check-config``."""

import socket
import time
import tracemalloc

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

SECRET = "a secret that nobody may read"
INSIDE = "<configuration><core><name>{}</name></core></configuration>"


def laughs(depth):
    """Entities of entities."""
    declared = ["<!ENTITY l0 'ha'>"]
    declared += [f"<!ENTITY l{at} '{f'&l{at - 1};' * 10}'>" for at in range(1, depth)]
    return f"<!DOCTYPE configuration [{''.join(declared)}]>" + INSIDE.format(f"&l{depth - 1};")


def document_type(declared, inside="&x;"):
    """One declaration, and its use."""
    return f"<!DOCTYPE configuration [{declared}]>" + INSIDE.format(inside)


BOMBS = {
    "a billion laughs": laughs(12),
    "one long entity, often": document_type(f"<!ENTITY x '{'x' * 100_000}'>", "&x;" * 10_000),
    "an entity of itself": document_type("<!ENTITY x '&x;'>"),
    "entities in an attribute": document_type(
        f"<!ENTITY x '{'x' * 10_000}'>", f"</name><wildcard-addresses a='{'&x;' * 5000}'/><name>"
    ),
    "attributes by default": document_type(f"<!ATTLIST name a CDATA '{'x' * 100_000}'>", "y"),
    "parameter entities": document_type("<!ENTITY % p '<!ENTITY x \"y\">'> %p;"),
    "a deep nest": "<a>" * 100_000 + "</a>" * 100_000,
    "a deep nest of known names": "<configuration>" + "<core>" * 5000 + "</core>" * 5000 + "</configuration>",
    "a huge attribute": INSIDE.format("").replace("<core>", f"<core a='{'x' * 11_000_000}'>"),
    "a huge text": INSIDE.format("x" * 11_000_000),
    "a hundred thousand unknown elements": f"<configuration><core>{'<a/>' * 100_000}</core></configuration>",
    "a hundred thousand attributes": "<configuration "
    + " ".join(f"a{number}='1'" for number in range(100_000))
    + "/>",
    "a hundred thousand namespaces": "<configuration "
    + " ".join(f"xmlns:a{number}='u:{number}'" for number in range(20_000))
    + "/>",
    "an unknown encoding": "<?xml version='1.0' encoding='utf-7'?>" + INSIDE.format("+ADw-"),
    "a version that is none": "<?xml version='9.9'?>" + INSIDE.format("x"),
    "a stylesheet": "<?xml-stylesheet href='file:///etc/passwd'?>"
    + INSIDE.format("<?php echo 1 ?>x").replace("name>", "nom>"),
    "nothing": "",
    "blanks": " " * 1_000_000,
    "an address match of stars": INSIDE.format("x").replace(
        "</core>",
        f"<address-settings><address-setting match='{'*.' * 5000}'><a/></address-setting></address-settings></core>",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(bomb, tmp_path):
    """Refused with file and line, in seconds and megabytes."""
    file = tmp_path / "broker.xml"
    file.write_text(BOMBS[bomb])
    begun = time.thread_time()
    tracemalloc.start()
    try:
        result = CliRunner().invoke(main, ["check-config", str(file)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.exit_code == 1 and f"{file}:" in result.output, result.output[:500]
    assert isinstance(result.exception, SystemExit), result.exception
    assert time.thread_time() - begun < 30
    assert peak < 400 * 1024 * 1024
    assert len(result.output) < 30 * len(BOMBS[bomb]) + 10_000


SYSTEM = {
    "an entity": ("<!ENTITY x SYSTEM '{}'>", "&x;"),
    "a public entity": ("<!ENTITY x PUBLIC 'y' '{}'>", "&x;"),
    "a parameter entity": ("<!ENTITY % x SYSTEM '{}'> %x;", "y"),
    "an entity within an entity": ("<!ENTITY y SYSTEM '{}'><!ENTITY x '&y;'>", "&x;"),
    "an unparsed entity": ("<!NOTATION n SYSTEM '{0}'><!ENTITY x SYSTEM '{0}' NDATA n>", "y"),
}


def others(url):
    """Ways to name another document."""
    found = {name: document_type(declared.format(url), used) for name, (declared, used) in SYSTEM.items()}
    found["a document type"] = f"<!DOCTYPE configuration SYSTEM '{url}'>" + INSIDE.format("x")
    include = f"<xi:include xmlns:xi='http://www.w3.org/2001/XInclude' href='{url}' parse='text'/>"
    found["XInclude"] = INSIDE.format("x").replace("</core>", include + "</core>")
    schema = "xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' xsi:schemaLocation"
    found["a schema"] = INSIDE.format("</name><nom>").replace(
        "<core>", f"<core {schema}='urn:activemq {url}'>"
    )
    return found


@pytest.mark.parametrize("way", others(""))
def test_no_other_file_is_read_and_nobody_is_called(way, tmp_path):
    """Not even a connection is opened to the host that is named."""
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    file = tmp_path / "broker.xml"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        host = f"http://127.0.0.1:{listening.getsockname()[1]}/x.dtd"
        for url in (secret.as_uri(), str(secret), "secret.txt", "file:///etc/passwd", host):
            file.write_text(others(url)[way])
            result = CliRunner().invoke(main, ["check-config", str(file)])
            assert result.exit_code == 1 and isinstance(result.exception, SystemExit), result.output
            assert SECRET not in result.output and "root:" not in result.output
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "cp037", "utf-8-sig", "iso-8859-1"])
def test_encodings_hide_nothing(encoding, tmp_path):
    """A document type is one in any encoding."""
    file = tmp_path / "broker.xml"
    declared = f"<?xml version='1.0' encoding='{encoding.removesuffix('-sig')}'?>"
    text = (declared + document_type("<!ENTITY x SYSTEM 'file:///etc/passwd'>")).encode(encoding)
    file.write_bytes(text)
    result = CliRunner().invoke(main, ["check-config", str(file)])
    assert result.exit_code == 1 and "root:" not in result.output
    assert "DOCTYPE" in result.output or "not well-formed" in result.output
