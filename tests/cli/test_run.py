"""``stompring run``: what of its options reaches the service, and which broker.xml it takes."""

import re
import signal
from pathlib import Path

import pytest

from stompring.server import service
from stompring.settings.machine import shipped_file

from ..broker_process import PATIENCE
from ..waiting import LONGEST
from .command import environment, invoke, start


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """The calls that reach the service, which is not started; the current directory is an empty one."""
    made = []

    def run(config_path, data_dir, log_level, log_format, **more):
        assert more.pop("stock_because") is None
        assert more.pop("wait") is False
        made.append((config_path, data_dir, log_level, log_format, *more.values()))
        return 3

    monkeypatch.setattr(service, "run", run)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.mark.parametrize("folders", [("etc",), ("config",), ("config", "etc")])
def test_the_default_file_is_taken_when_it_is_there(calls, folders):
    for folder in folders:
        Path(folder).mkdir()
        Path(folder, "broker.xml").touch()
    invoke("run", code=3)
    assert calls == [(f"{folders[0]}/broker.xml", None, "info", "text", 0)]


@pytest.mark.parametrize(
    "state, options, data",
    [
        ("{home}/state", "", "{home}/state/stompring"),
        ("", "", "{home}/.local/state/stompring"),
        ("relative", "", "{home}/.local/state/stompring"),
        ("", "--data d", "d"),
    ],
)
def test_without_any_file_it_takes_the_packaged_one_and_a_data_directory_of_the_user(
    calls, monkeypatch, tmp_path, state, options, data
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", state.format(home=tmp_path))
    invoke(f"run {options}", code=3)
    expected = data.format(home=tmp_path)
    shipped = shipped_file("config", "broker.xml")
    assert calls[0][:4] == (str(shipped), expected, "info", "text")
    assert calls[0][4] == (
        f"no --config and no config/broker.xml or etc/broker.xml in {tmp_path}: using the packaged configuration "
        f"{shipped} with the data directory {expected}"
    )


def test_the_packaged_configuration_starts_on_loopback(tmp_path):
    process = start(
        "run", env=environment(tmp_path, XDG_STATE_HOME=str(tmp_path), STOMPRING_BROKER=""), cwd=tmp_path
    )
    lines = []
    for line in process.stderr:
        lines.append(line.decode())
        if "is ready" in lines[-1] or "cannot listen" in lines[-1]:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONGEST * PATIENCE)
    log = "".join(lines)
    if "cannot listen" in log:
        pytest.skip("the ports of the packaged configuration are in use")
    assert "using the packaged configuration" in lines[0]
    listeners = re.findall(r"listens on (\S+)", log)
    assert listeners == ["127.0.0.1:61613", "127.0.0.1:61614", "127.0.0.1:8161"]
    assert (tmp_path / "stompring" / "journal").is_dir()
    assert process.returncode == 0


def test_all_options_are_passed_on(calls):
    invoke("run --config b.xml --data d --log-level DEBUG --log-format json --drain-timeout 5", code=3)
    assert calls == [("b.xml", "d", "debug", "json", 5)]


@pytest.mark.parametrize("options", ["--log-level loud", "--log-format xml", "--nonsense", "b.xml"])
def test_options_that_cannot_be_are_refused(calls, options):
    invoke(f"run {options}", code=2)
    assert calls == []


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path):
    result = invoke(f"run --config {tmp_path}/absent.xml", code=1)
    assert "absent.xml" in result.stderr
    assert "Traceback" not in result.output
