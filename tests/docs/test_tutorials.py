"""docs/tutorials: every command and every code block is run against a real broker, and each page leads on."""

import re
import shutil
from contextlib import ExitStack

import pytest

from ..console.browser import chromium
from ..packages import Environment
from ..packages import packages as packages
from .pages import blocks_of
from .source import ROOT
from .tutorial import DIRECTIVES, Tutorial, expected

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))

#: What a page needs besides stompring.
NEEDS = {
    "browser": ("Chromium", chromium),
    "securing": ("curl", lambda: shutil.which("curl") is not None),
}


#: The page that `make test` runs; it has a broker, files, clients in the background and their output.
SHORT = "request-reply"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == SHORT else [pytest.mark.long])
        for path in PAGES
        if path.stem != "lake"  # see tests/pipeline/lake/test_document.py
    ],
)
def test_every_block_does_what_the_page_says(path, tmp_path, request):
    """The long ones with the wheel, as their readers have it."""
    tool, is_there = NEEDS.get(path.stem, ("", lambda: True))
    if not is_there():
        pytest.skip(f"{tool} is not installed")
    installed = None
    if path.stem != SHORT:
        environment = Environment(tmp_path / "environment")
        environment.install(request.getfixturevalue("packages")[1])
        installed = environment.packages
    with ExitStack() as opened:
        Tutorial(tmp_path, path.read_text(), opened, installed).run()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_begins_with_its_result_and_has_blocks_that_are_run(path):
    text = path.read_text()
    assert re.match(r"# .+\n\nAfter this tutorial you can ", text)
    for block in blocks_of(text):
        assert block.key in DIRECTIVES, f"line {block.line}: {block.test}"
        assert block.key or block.language in ("sh", "text"), f"line {block.line}: nothing runs it"


@pytest.mark.parametrize(
    "shown, printed, fits",
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a …\n", "a 12 bytes\n", True),
        ("a\n…\n", "a\nb\nc\n", True),
        ("…\nb\n", "x\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n", "", False),
    ],
)
def test_outputs_are_compared(shown, printed, fits):
    assert (expected(shown).fullmatch(printed.strip() + "\n") is not None) is fits
