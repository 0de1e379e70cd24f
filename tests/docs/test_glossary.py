"""docs/glossary.md: each term has a meaning, a source and a module, and is explained once."""

from .source import PACKAGE, ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| term", "| ---"))
]


def test_each_term_has_a_meaning_a_source_and_a_module_and_is_explained_once():
    assert len({row[0] for row in ROWS}) == len(ROWS) > 80
    for row in ROWS:
        assert len(row) == 4 and all(row), row
        assert (PACKAGE / row[3].strip("`")).is_file(), row
