"""``stompring doctor``: each fault of a configuration, its files and its machine is a line that says what to do."""

import json
import os
import socket
import time
from pathlib import Path

import pytest

from stompring.cli import doctor
from stompring.settings.broker_xml import parse_broker_xml, read_broker_xml
from stompring.settings.machine import data_directory

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from .command import environment, invoke, run


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Few syncs; the command as a process takes its second."""
    monkeypatch.setattr(doctor, "SYNC_SECONDS", 0.02)


@pytest.fixture
def instance(tmp_path):
    """A new instance with TLS on free ports, without a fault."""
    run(f"init {tmp_path}/orders --tls --stomp-port 1 --http-port 2")
    config = tmp_path / "orders" / "etc" / "broker.xml"
    document = (
        config.read_text().replace("127.0.0.1:1?", "127.0.0.1:0?").replace("127.0.0.1:2?", "127.0.0.1:0?")
    )
    config.write_text(document)
    return config


def examined(config, *options, code=0):
    """Findings by check."""
    report = json.loads(invoke(f"doctor --config {config} --json", *options, code=code).stdout)
    found = {}
    for each in report["findings"]:
        found.setdefault(each["check"], []).append(each)
    assert report["error"] == sum(each["level"] == "error" for each in report["findings"])
    return found


def faults(found, check):
    return [each for each in found.get(check, []) if each["level"] != "ok"]


def test_a_new_instance_has_no_fault(instance):
    found = examined(instance)
    assert {
        "python",
        "libraries",
        "extras",
        "reactor",
        "configuration",
        "certificates",
        "permissions",
        "open files",
    } <= set(found)
    assert {"memory", "disk", "disk speed", "clock", "ports"} <= set(found)
    assert [
        check
        for check in found
        if check not in ("clock", "disk", "disk speed", "open files") and faults(found, check)
    ] == []


def test_the_lines_are_for_people_without_json(instance):
    lines = run("doctor --config", instance).stdout.decode().splitlines()
    assert f"ok       configuration  {instance}" in lines
    assert lines[-1].endswith("warnings, 0 errors")


def test_limits_that_are_off_are_listed(instance):
    def off(*changes):
        text = instance.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (found,) = doctor.limits_off(parse_broker_xml(text.encode(), str(instance)))
        assert (found.check, found.level) == ("limits", "ok")
        return found.text

    usual = off()
    for name in (
        "max-size-bytes",
        "page-limit-bytes",
        "slow-consumer-threshold",
        "max-sessions",
        "max-queues",
    ):
        assert name in usual
    for name in (
        "global-max-size",
        "max-disk-usage",
        "min-disk-free",
        "global-max-queues",
        "subscriptionsAllowed",
    ):
        assert name not in usual, "these have a default, or one of the two is enough"
    disk = "<max-disk-usage>90</max-disk-usage>"
    assert "max-disk-usage, min-disk-free" in off((disk, "<max-disk-usage>-1</max-disk-usage>"))
    assert "min-disk-free" not in off((disk, "<min-disk-free>1GB</min-disk-free>"))
    assert "global-max-queues" in off((disk, "<global-max-queues>-1</global-max-queues>"))
    assert "subscriptionsAllowed, handshake-timeout (acceptor stomp)" in off(
        ("127.0.0.1:0?", "127.0.0.1:0?subscriptionsAllowed=-1;handshake-timeout=0;")
    )
    users = '<resource-limit-settings><resource-limit-setting match="ada"><max-queues>5</max-queues>'
    limited = off((disk, f"{users}</resource-limit-setting></resource-limit-settings>"))
    assert "max-sessions (user ada)" in limited and "max-queues" not in limited
    assert "slow-consumer-threshold" not in off(
        (
            "<max-delivery-attempts>",
            "<slow-consumer-threshold>1</slow-consumer-threshold><max-delivery-attempts>",
        )
    )


def test_clients_that_reach_the_management_are_a_warning(instance):
    assert "security" not in examined(instance)
    text = instance.read_text()
    start = text.index('      <security-setting match="activemq.#">')
    end = text.index("</security-settings>")
    instance.write_text(text[:start] + "    " + text[end:])
    notifications, management = faults(examined(instance), "security")
    assert "grants send, consume, browse on activemq.notifications to " in notifications["text"]
    assert "createDurableQueue, createNonDurableQueue on activemq.management" in management["text"]
    line = f"{instance}:{text[:start].count(chr(10), 0, text.index('match=')) + 1}: "
    assert notifications["text"].startswith(line) and "security.xml" in notifications["action"]


@pytest.mark.parametrize(
    "file, mode, level, text",
    [
        ("users.properties", 0o644, "error", "is accessible by everybody (mode 0644)"),
        ("users.properties", 0o640, "warning", "is accessible by its group (mode 0640)"),
        ("tls/broker.key", 0o604, "error", "is accessible by everybody"),
        ("broker.xml", 0o666, "error", "can be changed by everybody"),
        ("tls", 0o777, "error", "any user can replace files in"),
    ],
)
def test_files_that_others_can_read_or_change(instance, file, mode, level, text):
    path = instance.parent / file
    path.chmod(mode)
    (fault,) = faults(examined(instance, code=1 if level == "error" else 0), "permissions")
    assert fault["level"] == level
    assert str(path) in fault["text"] and text in fault["text"]
    assert fault["action"].startswith("chmod") and str(path) in fault["action"]


def test_a_missing_users_file_is_an_error_with_the_command_that_helps(instance):
    (instance.parent / "users.properties").unlink()
    (fault,) = faults(examined(instance, code=1), "permissions")
    assert "users.properties does not exist" in fault["text"]
    assert "stompring user add" in fault["action"]


@pytest.mark.parametrize(
    "before, after, text",
    [
        ("<max-disk-usage>90", "<max-disk-usage>lots", "max-disk-usage"),
        ("<name>", "<nonsense/><name>", "nonsense"),
        ("tls/broker.pem", "tls/absent.pem", "absent.pem"),
    ],
)
def test_a_wrong_configuration_is_an_error(instance, before, after, text):
    instance.write_text(instance.read_text().replace(before, after))
    (fault, *_) = faults(examined(instance, code=1), "configuration")
    assert fault["level"] == "error" and text in fault["text"] and str(instance) in fault["text"]


def test_a_port_in_use_names_who_answers(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    other = tmp_path / "other.xml"
    with BrokerProcess(config, tmp_path / "data") as broker:
        document = broker_xml().replace("tcp://127.0.0.1:0", f"tcp://127.0.0.1:{broker.port}")
        other.write_text(document.replace("http://127.0.0.1:0", f"http://127.0.0.1:{broker.http_port}"))
        stomp, http = faults(examined(other, "--data", str(tmp_path / "free"), code=1), "ports")
        assert "is in use; it answers as stompring/" in stomp["text"]
        assert "is in use; it answers as stompring" in http["text"]
        assert faults(examined(other, "--data", str(tmp_path / "data")), "ports") == []


def test_a_silent_program_on_the_port(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "PROBE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = tmp_path / "broker.xml"
        config.write_text(
            broker_xml().replace("tcp://127.0.0.1:0", f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        )
        fault, *_ = (each for each in doctor.ports(read_broker_xml(str(config)), False) if each.level != "ok")
    assert fault.level == "error" and "it answers nothing" in fault.text


@pytest.mark.parametrize(
    "core, level, text",
    [
        ("<global-max-size>-1</global-max-size>", "warning", "may take all of"),
        ("<global-max-size>8000GB</global-max-size>", "error", "is more than the memory"),
    ],
)
def test_memory_that_is_not_there(tmp_path, core, level, text):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml(core=core))
    (fault,) = faults(examined(config, code=1 if level == "error" else 0), "memory")
    assert (fault["level"], text in fault["text"]) == (level, True)


def test_few_open_files(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml(core="<global-max-connections>2000000000</global-max-connections>"))
    (fault,) = faults(examined(config), "open files")
    assert "LimitNOFILE" in fault["action"]


def test_a_full_disk(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml(core="<max-disk-usage>0</max-disk-usage>"))
    fault, *_ = faults(examined(config, code=1), "disk")
    assert fault["level"] == "error" and "max-disk-usage is 0 %" in fault["text"]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm")
def test_a_data_directory_in_memory(tmp_path):
    if doctor.filesystem(Path("/dev/shm")) != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs")
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    found = examined(config, "--data", "/dev/shm/stompring-doctor-test")
    assert any("is in memory (tmpfs)" in each["text"] for each in faults(found, "disk"))
    assert not Path("/dev/shm/stompring-doctor-test").exists()


def test_files_from_the_future_show_a_clock_that_was_set_back(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    directories = data_directory(read_broker_xml(str(config)), str(tmp_path / "data"))
    directories.journal.mkdir(parents=True)
    file = directories.journal / "1.journal"
    file.touch()
    assert not any("set back" in each.text for each in doctor.clock(directories))
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    (fault,) = (each for each in doctor.clock(directories) if "set back" in each.text)
    assert fault.level == "warning"


def test_file_systems_are_found_by_their_longest_mount(tmp_path):
    mounts = tmp_path / "mounts"
    (tmp_path / "a b" / "c").mkdir(parents=True)
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    mounts.write_text(f"/dev/x / ext4 rw 0 0\nserver:/x {escaped} nfs4 rw 0 0\nbroken\n")
    assert doctor.filesystem(tmp_path / "a b" / "c", mounts) == "nfs4"
    assert doctor.filesystem(tmp_path / "a", mounts) == "ext4"
    assert doctor.filesystem(tmp_path, tmp_path / "absent") is None


def test_without_a_configuration_the_packaged_one_is_checked(tmp_path):
    env = environment(tmp_path, XDG_STATE_HOME=str(tmp_path / "state"))
    report = json.loads(run("doctor --json", cwd=tmp_path, env=env, code=None).stdout)
    texts = {each["check"]: each["text"] for each in report["findings"]}
    assert texts["configuration"].endswith("config/broker.xml")
    assert not (tmp_path / "state").exists(), "it changes nothing"


@pytest.mark.parametrize(
    "times, level, text",
    [
        ([1.0, 20.0, 90.0], "ok", "a sync takes 20.00 ms, at most 90.0 ms (3 measured)"),
        ([1.0, 20.1, 90.0], "warning", "a sync takes 20.10 ms, at most 90.0 ms (3 measured)"),
    ],
)
def test_the_typical_sync_tells_whether_a_disk_is_slow(tmp_path, times, level, text):
    (found,) = doctor.speed(tmp_path, lambda directory: times)
    assert (found.check, found.level, found.text) == ("disk speed", level, f"{tmp_path}: {text}")


def test_syncs_are_measured_and_leave_nothing(tmp_path):
    times = doctor.sync_times(tmp_path)
    assert 1 <= len(times) <= doctor.SYNCS and all(each > 0 for each in times)
    assert list(tmp_path.iterdir()) == []
