"""``stompring settings``: the list of settings, one of them, and names that no setting has."""

import json

import pytest

from stompring.cli.settings import KINDS
from stompring.settings.model import options_of

from .command import invoke


def shown(line):
    return json.loads(invoke(f"settings {line} --json").stdout)["settings"]


def test_every_row_is_listed():
    rows = [row for kinds in KINDS.values() for kind in kinds for row in options_of(kind) if row.meaning]
    assert len(shown("")) == len(rows) == len(invoke("settings").stdout.splitlines()) - 1


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ring-size", [("ring-size", "queue", "attribute", "from default-ring-size", "messages", True)]),
        (
            "Ring-Policy",
            [
                ("ring-policy", "address-setting", "element", "DISCARD", "", True),
                ("ring-policy", "queue", "attribute", "from ring-policy", "", True),
            ],
        ),
        ("outboxsize", [("outboxSize", "acceptor", "parameter of the URL", "262144", "bytes", False)]),
        ("stream", [("stream", "replicated-log", "attribute, required", "required", "", False)]),
        ("page-sync-timeout", [("page-sync-timeout", "core", "element", "none", "ns", False)]),
        ("max-disk-usage", [("max-disk-usage", "core", "element", "90", "percent", True)]),
    ],
)
def test_one_setting(name, found):
    fields = ("name", "element", "writtenAs", "default", "unit", "reload")
    rows = shown(name)
    assert [tuple(row[field] for field in fields) for row in rows] == found
    assert all(row["meaning"].endswith(".") and row["values"] and row["source"] for row in rows)
    assert f"meaning\t{rows[0]['meaning']}\n" in invoke(f"settings {name}").stdout


def test_an_element_lists_its_settings():
    assert {row["element"] for row in shown("Divert")} == {"divert"} and len(shown("Divert")) > 5
    assert invoke("settings divert").stdout.startswith("element\tname\tdefault\ndivert\tname\trequired\n")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("ring-sise", "there is no setting 'ring-sise'; did you mean 'ring-size'?"),
        ("adress-setting", "there is no setting 'adress-setting'; did you mean 'address-setting'?"),
        ("xyzzy", "there is no setting 'xyzzy'"),
    ],
)
def test_an_unknown_name(name, error):
    assert invoke(f"settings {name}", code=3).stderr == f"Error: {error}\n"
