"""docs/security.md against the code: what it names is there, and what tools find is answered."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
SOURCES = {
    path.relative_to(ROOT / "stompring").as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "stompring").rglob("*.py")
}
EXEMPT = [
    (file, finding) for file, source in SOURCES.items() for finding in re.findall(r"# nosec (B\d+)", source)
]


def answer(finding):
    """The row about what bandit found."""
    rows = [line for line in TEXT.splitlines() if line.startswith("| B") and finding in line.split("|")[1]]
    return " ".join(rows)


@pytest.mark.parametrize(("file", "finding"), EXEMPT)
def test_every_exemption_from_bandit_is_answered(file, finding):
    assert file.rpartition("/")[2] in answer(finding).replace("`", "") or file in answer(finding)


@pytest.mark.parametrize("number", range(1, 11))
def test_every_class_of_owasp_has_an_answer(number):
    (row,) = (line for line in TEXT.splitlines() if line.startswith(f"| API{number} "))
    assert len(row.split("|")[2]) > 30


def test_its_metrics_and_settings_are_documented_where_they_belong():
    metrics = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    settings = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for metric in re.findall(r"`(stompring_[a-z_]+)`", TEXT):
        assert f"`{metric}" in metrics, metric
    for element in re.findall(r"`<([a-z-]+)>`", TEXT) + re.findall(r"`([a-z]+[A-Z]\w+)(?:=\w+)?`", TEXT):
        assert element in settings, element
