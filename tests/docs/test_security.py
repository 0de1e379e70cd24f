"""The pages about security against the code: what they name is there, and what tools find is answered."""

import re

import pytest

from .pages import text_of
from .source import PACKAGE

TEXT = text_of("docs/security.md") + text_of("docs/dev/security.md")
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
EXEMPT = [
    (file, finding) for file, source in SOURCES.items() for finding in re.findall(r"# nosec (B\d+)", source)
]


def answer(finding):
    """The row about what bandit found."""
    rows = [line for line in TEXT.splitlines() if line.startswith("| B") and finding in line.split("|")[1]]
    return " ".join(rows)


@pytest.mark.parametrize("file, finding", EXEMPT)
def test_every_exemption_from_bandit_is_answered(file, finding):
    assert file.rpartition("/")[2] in answer(finding).replace("`", "") or file in answer(finding)


@pytest.mark.parametrize("number", range(1, 11))
def test_every_class_of_owasp_has_an_answer(number):
    (row,) = (line for line in TEXT.splitlines() if line.startswith(f"| API{number} "))
    assert len(row.split("|")[2]) > 30


def test_its_metrics_and_settings_are_documented_where_they_belong():
    metrics, settings = text_of("docs/metrics.md"), text_of("docs/settings.md")
    for metric in re.findall(r"`(stompring_[a-z_]+)`", TEXT):
        assert f"`{metric}" in metrics, metric
    for element in re.findall(r"`<([a-z-]+)>`", TEXT) + re.findall(r"`([a-z]+[A-Z]\w+)(?:=\w+)?`", TEXT):
        assert element in settings, element
