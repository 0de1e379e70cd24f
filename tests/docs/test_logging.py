"""docs/logging.md: the fields of the JSON format, compared with the log calls."""

import ast
import re

from stompring.broker.limits import INTERVAL, LINES

from .source import ROOT, modules, parsed

TEXT = (ROOT / "docs" / "logging.md").read_text()


def test_every_field_of_a_log_call_is_documented():
    """Keys of ``extra=`` and ``fields=``, in the calls of the broker."""
    paths = modules("broker", "paging", "store", "session", "admin", "server", "security", "policy")
    fields = {
        key.value
        for path in paths
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.keyword)
        and node.arg in ("extra", "fields")
        and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }
    for path in paths:
        fields |= set(re.findall(r'self\.fields\["(\w+)"\]', path.read_text()))
    assert {"queue", "address", "connection", "user", "peer"} <= fields
    rows = re.findall(r"^\| (`.+`) \| (?:text|number|object) \|", TEXT, re.MULTILINE)
    assert fields <= set(re.findall(r"`(\w+)`", " ".join(rows)))


def test_the_limit_of_lines():
    assert f"at most {LINES} lines in {INTERVAL // 1000} seconds" in " ".join(TEXT.split())
