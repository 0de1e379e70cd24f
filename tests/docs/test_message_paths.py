"""docs/architecture.md lists the calls of a message as they are."""

from difflib import unified_diff

from .message_paths import DOCUMENT, paths, sections

HOT_PATH_CALLS = 16


def test_listed_calls_are_up_to_date():
    outdated = [
        "\n".join(unified_diff(present.splitlines(), expected.splitlines(), name, "now", n=3, lineterm=""))
        for name, present, expected in sections(DOCUMENT.read_text("utf-8"))
        if present != expected
    ]
    assert not outdated, "run: python -m tests.docs.message_paths\n" + "\n".join(outdated)


def test_hot_path_has_no_more_calls():
    assert len(paths()["hot path"]) <= HOT_PATH_CALLS
