"""docs/logging.md: the fields of the JSON format, compared with the log calls and with the formatter."""

from __future__ import annotations

import ast
import re

from stompring.broker.rejections import INTERVAL, LINES
from stompring.server.logs import FIELDS

from .source import ROOT

TEXT = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")


def fields_of_log_calls():
    """Every field in a log call of the broker: keys of ``extra=`` and ``fields=``."""
    found: set[str] = set()
    for package in ("broker", "paging", "store", "session", "admin", "server", "security", "policy"):
        for file in (ROOT / "stompring" / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    for keyword in node.keywords:
                        if keyword.arg in ("extra", "fields") and isinstance(keyword.value, ast.Dict):
                            found |= {
                                key.value for key in keyword.value.keys if isinstance(key, ast.Constant)
                            }
                if (
                    isinstance(node, ast.Subscript)
                    and isinstance(node.ctx, ast.Store)
                    and ast.unparse(node.value) in ("fields", "self.fields")
                    and isinstance(node.slice, ast.Constant)
                ):
                    found.add(str(node.slice.value))
    return found


def test_every_field_is_documented_in_order():
    assert tuple(re.findall(r"^\| `(\w+)` \| (?:text|number|object) \|", TEXT, re.MULTILINE)) == FIELDS


def test_every_field_of_a_log_call_is_written():
    fields = fields_of_log_calls()
    assert {"queue", "address", "connection", "user", "peer"} <= fields
    assert fields <= set(FIELDS)


def test_the_limit_of_lines():
    assert f"at most {LINES} lines in {INTERVAL // 1000} seconds" in " ".join(TEXT.split())
