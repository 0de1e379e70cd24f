"""docs/tutorials: every command and every code block is run against a real broker, and each page leads on."""

import importlib.util
import re
import shutil
from contextlib import ExitStack

import pytest

from .source import ROOT
from .tutorial import Tutorial, blocks, expected, has_chromium

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))

#: What a page needs besides stompring.
NEEDS = {
    "lake": ("pyspark", lambda: importlib.util.find_spec("pyspark") is not None),
    "browser": ("Chromium", has_chromium),
    "securing": ("curl", lambda: shutil.which("curl") is not None),
}


def _with_marks(path):
    """The page about a lake starts Spark twice."""
    marks = [pytest.mark.spark, pytest.mark.timeout(600)] if path.stem == "lake" else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [_with_marks(path) for path in PAGES])
def test_every_block_does_what_the_page_says(path, tmp_path):
    tool, is_there = NEEDS.get(path.stem, ("", lambda: True))
    if not is_there():
        pytest.skip(f"{tool} is not installed")
    with ExitStack() as opened:
        Tutorial(tmp_path, path.read_text(encoding="utf-8"), opened).run()


def test_there_is_a_page_for_each_subject():
    subjects = {"first-ring", "work-queue", "browser", "lake", "securing", "from-artemis"}
    subjects |= {"from-rabbitmq", "request-reply"}
    assert {path.stem for path in PAGES} == subjects


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_begins_with_its_result_and_ends_with_a_next_step(path):
    text = path.read_text(encoding="utf-8")
    assert re.match(r"# .+\n\nAfter this tutorial you can ", text)
    last = text.rstrip().split("\n\n")[-1]
    assert last.startswith("Next: ") and re.findall(r"\]\([\w./#-]+\)", last), last


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_to_files_and_sections(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        file, _, section = target.partition("#")
        page = (path.parent / file) if file else path
        assert page.exists(), target
        if section:
            titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}
            assert section in slugs, target


@pytest.mark.parametrize(
    ("shown", "printed", "fits"),
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


def test_blocks_are_found_with_their_comments():
    page = "x\n\n<!-- test: file=a.py -->\n```python\n1\n```\n\n```sh\nls\n```\n"
    assert [(each.language, each.key, each.value, each.text) for each in blocks(page)] == [
        ("python", "file", "a.py", "1\n"),
        ("sh", "", "", "ls\n"),
    ]
