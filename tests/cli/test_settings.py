"""``stompring settings``: the list of settings, one of them, and names that no setting has."""

import json

import pytest

from stompring.settings.model import options_of

from ..docs.settings_reference import KINDS
from .command import invoke


def shown(line):
    return json.loads(invoke(f"settings {line} --json").stdout)["settings"]


def test_every_row_is_listed():
    rows = [row for kind in KINDS.values() for row in options_of(kind) if row.meaning]
    assert len(shown("")) == len(rows) == len(invoke("settings").stdout.splitlines()) - 1


@pytest.mark.parametrize(
    "found",
    [
        "ring-size|queue|attribute|from default-ring-size|messages|True",
        "ring-policy|address-setting|element|DISCARD||True; ring-policy|queue|attribute|from ring-policy||True",
        "outboxSize|acceptor|parameter of the URL|262144|bytes|False",
        "page-sync-timeout|core|element|none|ns|False",
        "max-disk-usage|core|element|90|percent|True",
        "storage-limit|journal-retention-directory|attribute|-1|bytes|False",
    ],
)
def test_one_setting(found):
    fields, name = ("name", "element", "writtenAs", "default", "unit", "reload"), found.partition("|")[0]
    rows = shown(name.upper())
    assert "; ".join("|".join(str(row[field]) for field in fields) for row in rows) == found
    assert all(row["meaning"].endswith(".") and row["values"] and row["source"] for row in rows)
    assert f"meaning\t{rows[0]['meaning']}\n" in invoke(f"settings {name}").stdout


def test_an_element_lists_its_settings():
    assert {row["element"] for row in shown("Divert")} == {"divert"} and len(shown("Divert")) > 5
    assert invoke("settings divert").stdout.startswith("element\tname\tdefault\ndivert\tname\trequired\n")


@pytest.mark.parametrize(
    "name, hint",
    [
        ("ring-sise", "; did you mean 'ring-size'?"),
        ("adress-setting", "; did you mean 'address-setting'?"),
        ("xyzzy", ""),
    ],
)
def test_an_unknown_name(name, hint):
    assert invoke(f"settings {name}", code=3).stderr == f"Error: there is no setting '{name}'{hint}\n"
