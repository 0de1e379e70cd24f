"""docs/glossary.md: each class of the core packages has a name that is made of its terms, and its modules exist."""

import ast
import re

import pytest

from .source import PACKAGE, ROOT

TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| term", "| ---"))
]
PACKAGES = ("broker", "store", "paging", "session", "policy")

#: Words that any reader of Python, Twisted, STOMP or Prometheus knows, or that only say which of several it is.
PLAIN = set(
    """
    by no non none not of on from to and the
    active address anonymous attributes authenticator auto append batch broker busy byte bytes bound built cache
    change changed chunk cleared client clock column columns condition connection contents copied copy counter counts
    data decoded deletion directory disk entries entry error errors event field fields file files fault finding
    folder found gap given global handshake head header headers highest ids interval intervals invalid journal kind
    limit limits list load local lock log lost manual memory message messages node now number numbers oldest option
    outcome outgoing page pages paging parameter parameters part path permission plan plans position progress queue
    queues quota reactor read reader reading reason recorder recording ref references rejected rejection removed report
    request
    result retained retaining rights row rule score shared size slice slot snapshot start end state status stored
    summary terms time timer times timing transport type unaccounted unreadable unsupported update updates user
    value version view watched work write writer zone
    acknowledged deferred evaluated incoming pending candidate checked free wait word step answer route sent
    all allow columns freed line key only recoverable selected source sources start refuse fail drop cause
    """.split()
)


def words(name):
    """The words of a CamelCase name, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def stems(word):
    """A word as it stands, and without the endings of English."""
    found = {word}
    for ending, instead in (
        ("s", ""), ("es", ""), ("ies", "y"), ("d", ""), ("ed", ""), ("ing", ""), ("ing", "e"), ("er", ""), ("er", "e"),
    ):  # fmt: skip
        if word.endswith(ending):
            found.add(word[: -len(ending)] + instead)
    return found


TERMS = {stem for row in ROWS for word in re.findall(r"[a-z]+", row[0].lower()) for stem in stems(word)}


def classes():
    """Name and module of each class of the core packages."""
    return [
        (node.name, path.relative_to(PACKAGE).as_posix())
        for package in PACKAGES
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


@pytest.mark.parametrize(("name", "module"), classes())
def test_each_class_is_named_by_terms_of_the_glossary(name, module):
    unknown = [word for word in words(name) if not (stems(word) & TERMS or word in PLAIN)]
    assert unknown == [], (
        f"{module}: {name}: explain {unknown} in docs/glossary.md, or use a term that is there"
    )


def test_a_private_word_is_found():
    assert not stems("crowd") & TERMS and "crowd" not in PLAIN
    assert {"dispatcher", "journal", "cursor"} <= TERMS


def test_each_term_has_a_meaning_a_source_and_a_module():
    assert len(ROWS) > 80
    for row in ROWS:
        assert len(row) == 4 and all(row), row
        assert (PACKAGE / row[3].strip("`")).is_file(), row


def test_no_term_is_explained_twice():
    terms = [row[0] for row in ROWS]
    assert sorted(set(terms)) == sorted(terms)
