"""The glossaries: each term has a meaning, a source and a page or module, and is explained once."""

from .source import PACKAGE, ROOT


def rows(page):
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / page).read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| term")
    ]


def test_each_term_has_a_meaning_a_source_and_a_page_or_module_and_is_explained_once():
    users, contributors = rows("docs/glossary.md"), rows("docs/dev/glossary.md")
    terms = [term for row in [*users, *contributors] for term in row[0].split(", ")]
    assert len(set(terms)) == len(terms) > 100
    for row in [*users, *contributors]:
        assert len(row) == 4 and all(row), row
    for row in contributors:
        assert (PACKAGE / row[3].strip("`")).is_file(), row
