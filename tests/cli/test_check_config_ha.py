"""``stompring check-config`` and a replicated log."""

import sys

import pytest

from .command import invoke


def check(folder, attributes):
    file = folder / "broker.xml"
    file.write_text(
        "<configuration><core><security-enabled>false</security-enabled>"
        f'<ha-policy><replicated-log stream="orders" {attributes}/></ha-policy></core></configuration>'
    )
    return invoke(f"check-config {file}", code=None).output


def test_summary_names_the_log(tmp_path):
    output = check(tmp_path, 'url="nats://a:4222" broker="b1" user="u" password="hills"')
    assert "  replicated log orders at nats://a:4222, as broker b1\n" in output and "hills" not in output


def test_missing_file_is_a_fault(tmp_path):
    output = check(tmp_path, 'url="tls://a:4222" credentials="n.creds"')
    assert f"credentials of <replicated-log>: {tmp_path}/n.creds does not exist" in output


@pytest.mark.parametrize("url, library", [("nats://a", "nats"), ("postgresql://a/b", "psycopg")])
def test_missing_client_is_a_fault(tmp_path, monkeypatch, url, library):
    monkeypatch.setitem(sys.modules, library, None)
    assert f"requires the package {library}: pip install 'stompring[ha]'" in check(tmp_path, f'url="{url}"')
