"""docs/plugins.md tells of every hook, view, answer and parameter type there is, and what it shows works."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stompring.policy
from stompring.broker.ports import SLOW_HOOK
from stompring.policy import ACCEPT, AddressPolicy, AddressView, parameter
from stompring.settings.broker_xml import parse_broker_xml

from ..docs.pages import text_of

ROOT = Path(__file__).resolve().parents[2]
TEXT = text_of("docs/plugins.md")


def rows(heading):
    """The cells of the table below a heading, without its head."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    section = section.split("\n### ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    return cells[2:]


def code(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def hooks():
    return {
        name for name, value in vars(AddressPolicy).items() if inspect.isfunction(value) and name[0] != "_"
    }


def test_every_hook_is_documented():
    assert [row[0].strip("`") for row in rows("The hooks")] == [
        name for name in vars(AddressPolicy) if name in hooks()
    ], "in the order of the class"


@pytest.mark.parametrize("name", sorted(hooks()))
def test_every_hook_does_nothing(name):
    function = getattr(AddressPolicy, name)
    assert inspect.getdoc(function)
    count = len(inspect.signature(function).parameters)
    assert function(*[AddressPolicy() for _ in range(count)]) is None


def test_hot_hooks_are_said_to_be_hot():
    documented = {row[0].strip("`") for row in rows("The hooks") if "**hot**" in row[2]}
    assert documented == {
        name for name in hooks() if "Hot" in (inspect.getdoc(getattr(AddressPolicy, name)) or "")
    }


def test_every_answer_is_documented():
    answers = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[3])) for row in rows("The hooks")}
    others = {"ChangeHeaders", "Redirect", "Refuse", "Wait"}
    assert answers["admit"] == {"ACCEPT", "DROP"} | others
    assert answers["full"] == {word.name for word in type(ACCEPT)} | {"Refuse"}
    assert answers["subscribed"] == {"Refuse"}


def test_every_type_of_parameter_is_documented():
    documented = {row[0].strip("`") for row in rows("Parameters")}
    paragraph = str(inspect.getdoc(parameter)).split("\n\n")[1].split("each also")[0]
    known = {name.rpartition(".")[2] or name for name in re.findall(r"`{1,2}([^`]+)`{1,2}", paragraph)}
    spelled = {"Literal[…]": 'Literal["a", "b"]', "tuple[str, …]": "tuple[str, ...]"}
    assert documented == {spelled.get(name, name) for name in known}


def test_every_public_name_is_there():
    for name in stompring.policy.__all__:
        assert getattr(stompring.policy, name) is not None
        assert re.search(rf"\b{name}\b", TEXT) or name in ("Verdict", "FullVerdict"), name


def test_the_example_and_its_test_work(tmp_path):
    largest, quota, *tests = code("python")
    (tmp_path / "plugins").mkdir()
    for name, text in [
        ("largest", largest),
        ("daily_quota", quota),
        *zip(("test_1", "test_2"), tests, strict=True),
    ]:
        (tmp_path / "plugins" / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "plugins")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    (xml,) = code("xml")
    (plugin,) = parse_broker_xml(f"<configuration><core>{xml}</core></configuration>".encode(), "x").plugins
    assert plugin.name == "largest"


def test_the_limit_of_the_state_is_documented():
    assert "at most 16 KiB of JSON" in TEXT  # tests/policy/test_testing.py exceeds it
    assert "at most 16 KiB" in str(inspect.getdoc(AddressView.state))


def test_the_limit_of_slow_hooks_is_documented():
    assert f"longer than {SLOW_HOOK * 1000:.0f} ms" in " ".join(TEXT.split())
    metrics = text_of("docs/metrics.md")
    assert f"longer than {SLOW_HOOK * 1000:.0f} ms" in metrics
