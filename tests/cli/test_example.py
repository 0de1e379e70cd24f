"""``stompring example``: the list, one example, and copies that overwrite nothing."""

import json

import pytest

from ..broker_process import ROOT
from .command import invoke

FILES = {
    path.relative_to(top).as_posix(): path
    for top in (ROOT / "config", ROOT / "examples")
    for path in top.rglob("*")
    if path.suffix
    in {".xml", ".json", ".yml", ".yaml", ".service", ".conf", ".cfg", ".res", ".toml", ".py", ".rb"}
}


def test_every_file_is_listed_with_its_subject():
    listed = {
        each["name"]: each["subject"] for each in json.loads(invoke("example list --json").stdout)["examples"]
    }
    assert FILES.keys() <= listed.keys() and all(listed[name] for name in FILES)
    assert listed["ring.xml"] == "Ring queues: a full ring evicts its oldest message"
    assert listed["request_reply.rb"].startswith("Request and reply over STOMP with the gem stomp")
    assert len(invoke("example list").stdout.splitlines()) == len(listed) + 1


def test_an_example_is_printed_as_it_is():
    assert invoke("example show stompring.service").stdout_bytes == FILES["stompring.service"].read_bytes()


def test_files_and_folders_are_copied_and_not_overwritten(tmp_path):
    target = tmp_path / "new" / "etc"
    assert invoke("example copy ring.xml", target).stdout == f"wrote {target}/ring.xml\n"
    (target / "ring.xml").write_text("mine")
    refused = invoke("example copy ring.xml", target, code=1)
    assert f"{target}/ring.xml exists already; --force overwrites it" in refused.stderr
    assert (target / "ring.xml").read_text() == "mine"
    invoke("example copy ring.xml", target, "--force")
    assert (target / "ring.xml").read_bytes() == FILES["ring.xml"].read_bytes()
    invoke("example copy ha/haproxy.cfg", target)
    written = json.loads(invoke("example copy grafana/", target, "--json").stdout)["files"]
    assert written == sorted(str(target / name) for name in FILES if name.startswith("grafana/"))
    (target / "ha").mkdir()
    (target / "ha" / "nats-server.conf").symlink_to("nowhere")
    invoke("example copy ha", target, code=1)
    assert [path.name for path in (target / "ha").iterdir()] == ["nats-server.conf"]
    assert "is a file" in invoke("example copy ring.xml", target / "ring.xml", code=2).stderr


@pytest.mark.parametrize(
    "name", ["ha", "", "/", ".", "../setup.py", "/etc/passwd", "ring", "Ring.xml", "a\tb\x1b[1m", "ü\udc80"]
)
def test_unknown_names_are_refused(tmp_path, name):
    faults = [invoke("example show", name, code=3)]
    if name != "ha":
        faults.append(invoke("example copy", name, tmp_path / "etc", code=3))
    for fault in faults:
        assert fault.stderr.startswith("Error: there is no example ") and "\x1b" not in fault.stderr
    assert not (tmp_path / "etc").exists()
