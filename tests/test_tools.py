"""The table of tools that tests need."""

import re
from pathlib import Path

import pytest

from .tools import EXCUSED, TOOLS, need, program

TESTS = Path(__file__).parent
REASON = re.compile(r"""["'](?:an? )?([\w. -]+?)(?: [\d.]+)? is not installed""")


def test_every_tool_that_a_test_names_is_in_the_table():
    texts = [path.read_text() for path in TESTS.rglob("*.py") if path.name != "test_summary.py"]
    named = {name for text in texts for name in REASON.findall(text)}
    assert {"Chromium", "C compiler"} <= named
    assert named - {"console"} <= TOOLS.keys()  # the console is a part of the product


def test_every_excuse_is_for_a_tool():
    assert EXCUSED.keys() <= TOOLS.keys()


def test_a_program_that_is_missing_skips_the_test_with_its_name(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        pytest.skip.Exception, match="^promtool is not installed: apt-get install prometheus$"
    ):
        need("promtool")
    (tmp_path / "promtool").touch(0o755)
    assert need("promtool") == program("promtool") == str(tmp_path / "promtool")
