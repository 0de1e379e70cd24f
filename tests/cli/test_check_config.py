"""``stompring check-config``."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from .command import invoke

GOOD = b"""<configuration><core>
<security-enabled>false</security-enabled>
<acceptors>
<acceptor name="a">tcp://127.0.0.1:61613</acceptor><acceptor name="w">ws://127.0.0.1:61614/stomp</acceptor>
<acceptor name="b">http://[::1]:0</acceptor>
</acceptors>
<address-settings><address-setting match="#"/></address-settings>
<addresses><address name="a"><anycast><queue name="q"/><queue name="r"/></anycast></address></addresses>
</core></configuration>"""

BAD = b"""<configuration><core>
<nmae>x</nmae>
<global-max-size>0</global-max-size>
</core></configuration>"""


@pytest.fixture
def good(tmp_path):
    (tmp_path / "good.xml").write_bytes(GOOD)
    return str(tmp_path / "good.xml")


@pytest.fixture
def bad(tmp_path):
    (tmp_path / "bad.xml").write_bytes(BAD)
    return str(tmp_path / "bad.xml")


def run(line="", *others, **more):
    return invoke(f"check-config {line}", *others, **more)


def test_a_good_file_is_summed_up(good):
    result = run(good)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        f"{good}: ok",
        "  STOMP on tcp://127.0.0.1:61613",
        "  STOMP over WebSocket on ws://127.0.0.1:61614/stomp",
        "  HTTP on http://[::1]:(any)",
        "  security off",
        f"  journal in {Path(good).parent / 'data' / 'journal'}, pages in {Path(good).parent / 'data' / 'paging'}",
        "  1 address, 2 queues, 1 address-setting",
    ]


def test_all_faults_of_a_bad_file_are_told(bad):
    result = run(bad, code=1)
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{bad}:2: unknown element <nmae> in <core>; did you mean 'name'?",
        f"{bad}:3: <global-max-size> is '0': must be -1 (no limit) or at least 1; "
        "0 would accept no message; use -1 for no limit",
    ]


def test_json_has_faults_warnings_and_summary_of_each_file(good, bad, tmp_path):
    broken = tmp_path / "broken.xml"
    broken.write_text("<configuration>\n  <core></cor></configuration>")
    missing = str(tmp_path / "missing.xml")
    result = run(f"--json {good} {bad}", str(broken), missing, code=1)
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert found["valid"] is False
    valid, faulty, malformed, absent = found["files"]
    assert (valid["file"], valid["valid"], valid["faults"], valid["warnings"]) == (good, True, [], [])
    assert "1 address, 2 queues, 1 address-setting" in valid["summary"]
    places = [(each["file"], each["line"], each["column"]) for each in faulty["faults"]]
    assert places == [(bad, 2, None), (bad, 3, None)] and faulty["summary"] == []
    assert faulty["faults"][0]["text"] == "unknown element <nmae> in <core>; did you mean 'name'?"
    (fault,) = malformed["faults"]
    assert (fault["line"], fault["column"]) == (2, 15) and fault["text"].startswith("not well-formed XML")
    assert absent["faults"][0] == {
        "file": missing,
        "line": None,
        "column": None,
        "text": "cannot be read: No such file or directory",
    }
    assert json.loads(run(f"--json {good}").stdout)["valid"] is True


def test_one_bad_file_does_not_stop_the_others(good, bad, tmp_path):
    missing = str(tmp_path / "missing.xml")
    result = run(bad, missing, good, code=1)
    assert result.stdout.startswith(f"{good}: ok")
    assert f"{missing}: cannot be read: No such file or directory" in result.stderr
    assert f"{bad}:2: " in result.stderr


def test_a_users_file_is_named_and_looked_for(tmp_path):
    path = tmp_path / "broker.xml"
    path.write_bytes(b"<configuration><core/></configuration>")
    users = tmp_path / "users.properties"
    refused = run(str(path), code=1)
    assert (
        f"{path}: no users are known: there is no users file {users}; create it with: stomp" in refused.stderr
    )
    users.touch()
    assert run(str(path)).stdout.splitlines()[1:] == [
        "  no acceptor",
        f"  security on, users in {users}",
        "  permissions: no security-setting: everything is denied",
        f"  journal in {tmp_path / 'data' / 'journal'}, pages in {tmp_path / 'data' / 'paging'}",
        "  0 addresses, 0 queues, 0 address-settings",
    ]


def test_permissions_are_counted(tmp_path):
    path, roles = tmp_path / "broker.xml", tmp_path / "roles.properties"
    (tmp_path / "users.properties").touch()
    settings = (
        '<security-settings><security-setting match="#"/><security-setting match="a"/></security-settings>'
    )
    path.write_text(f"<configuration><core>{settings}</core></configuration>")
    line = f"  permissions: 2 security-settings, roles in {roles}"
    assert f"{line} (missing: create it with 'stompring user grant')\n" in run(str(path)).stdout
    roles.touch()
    assert f"{line}\n" in run(str(path)).stdout


def test_permissions_on_the_management_are_a_warning(tmp_path):
    path = tmp_path / "broker.xml"
    for name in ("users", "roles"):
        (tmp_path / f"{name}.properties").touch()
    entry = '<security-setting match="#"><permission type="consume" roles="a"/></security-setting>'
    path.write_text(
        f"<configuration><core><security-settings>{entry}</security-settings></core></configuration>"
    )
    first, second = run(str(path)).stderr.splitlines()
    assert first.startswith(
        f'{path}:1: <security-setting match="#"> grants consume on activemq.notifications'
    )
    assert "on activemq.management to a" in second and second.endswith(" (warning)")


def test_a_secret_is_not_shown(tmp_path):
    path = tmp_path / "broker.xml"
    (tmp_path / "secret").write_text("m4rker\n")
    (tmp_path / "spill.py").write_text("")
    path.write_text(
        '<configuration><core><broker-plugins><broker-plugin name="x" policy="stamp"><property key="header" '
        'value="${file:secret}"/></broker-plugin></broker-plugins></core></configuration>'
    )
    result = run(str(path), code=1)
    assert "m4rker" not in result.output and str(path) in result.output


def test_without_a_store_everything_is_in_memory(tmp_path):
    path = tmp_path / "broker.xml"
    path.write_bytes(GOOD.replace(b"<core>", b"<core><persistence-enabled>false</persistence-enabled>", 1))
    assert "  persistence off: all messages in memory\n" in run(str(path)).stdout


def test_warnings_are_told_and_no_faults(tmp_path):
    path = tmp_path / "broker.xml"
    half = b'<address-setting match="#"><page-limit-messages>5</page-limit-messages></address-setting>'
    path.write_bytes(GOOD.replace(b'<address-setting match="#"/>', half))
    result = run(str(path))
    assert result.stdout.startswith(f"{path}: ok")
    assert result.stderr == (
        f"{path}:7: the page limit has no effect without <page-full-policy> (DROP or FAIL) (warning)\n"
    )


ARTEMIS = GOOD.replace(
    b"</core>", b"<journal-type>NIO</journal-type><read-whole-page>true</read-whole-page></core>"
)


def test_settings_of_artemis_without_effect_are_listed(tmp_path):
    (tmp_path / "artemis.xml").write_bytes(ARTEMIS)
    result = run(str(tmp_path / "artemis.xml"))
    assert result.stderr == ""
    assert "  2 settings have no effect here: journal-type, read-whole-page" in result.stdout.splitlines()
    (found,) = json.loads(run(f"--json {tmp_path}/artemis.xml").stdout)["files"]
    assert found["ignored"][0] == {
        "file": str(tmp_path / "artemis.xml"),
        "line": 9,
        "name": "journal-type",
        "reason": "the only journal type is plain files with one sync per batch",
    }


def test_strict_refuses_settings_of_artemis_without_effect(tmp_path, good):
    file = tmp_path / "artemis.xml"
    file.write_bytes(ARTEMIS)
    result = run(f"--strict {file}", code=1)
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{file}:9: journal-type has no effect here: the only journal type is plain files with one sync per batch",
        f"{file}:9: read-whole-page has no effect here: pages are read in blocks, see prefetch-page-bytes",
    ]
    run(f"--strict {good}")
    included = GOOD.replace(
        b"<acceptors>", b'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="more.xml"/><acceptors>'
    )
    (tmp_path / "more.xml").write_text("\n<journal-type>NIO</journal-type>")
    file.write_bytes(included)
    assert run(f"--strict {file}", code=1).stderr.startswith(
        f"{tmp_path / 'more.xml'}:2: journal-type has no effect"
    )


def test_a_file_must_be_named():
    run(code=2)


# ---- what the start opens


SECURE = b"""<configuration><core>
<acceptors><acceptor name="a">tcp://127.0.0.1:61613</acceptor></acceptors>
<security-settings><security-setting match="#"/></security-settings>
<certificate-users-file>certificates.properties</certificate-users-file>
</core></configuration>"""


@pytest.fixture
def home():
    """A configuration that root has made, in a directory that everybody may enter."""
    directory = Path(tempfile.mkdtemp(prefix="stompring-check-"))
    directory.chmod(0o755)
    (directory / "broker.xml").write_bytes(SECURE)
    for name in ("users.properties", "roles.properties", "certificates.properties"):
        (directory / name).touch()
    yield directory
    shutil.rmtree(directory)


def as_nobody(*arguments):
    """Exit status and output of the command, run by another user."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    run(*arguments, code=None)  # what is imported with the first use may be readable for root alone
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            result = run(*arguments, code=None)
            os.write(writing, f"{result.exit_code} {result.output}{result.exception or ''}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as told:
        status, _, output = told.read().partition(" ")
    os.waitpid(child, 0)
    return int(status), output


@pytest.mark.parametrize("name", ["users.properties", "roles.properties", "certificates.properties"])
def test_a_file_that_the_user_cannot_read(home, name):
    data = home / "data"
    data.mkdir()
    os.chmod(data, 0o777)
    arguments = ("--data", str(data), str(home / "broker.xml"))
    assert as_nobody(*arguments)[0] == 0
    (home / name).chmod(0o600)
    status, output = as_nobody(*arguments)
    assert status == 1 and name in output and "Permission denied" in output
    assert ": ok" not in output


@pytest.mark.parametrize(
    "closed", ["data", "data/journal", "data/paging", "data/journal/000000001.journal", "data/broker.lock"]
)
def test_data_that_the_user_cannot_write(home, closed):
    data = home / "data"
    (data / "journal").mkdir(parents=True)
    (data / "paging").mkdir()
    for file in (data / "journal" / "000000001.journal", data / "broker.lock"):
        file.touch()
    for path in (data, *data.rglob("*")):
        path.chmod(0o777)
    assert as_nobody(str(home / "broker.xml"))[0] == 0
    (home / closed).chmod(0o700)
    status, output = as_nobody(str(home / "broker.xml"))
    assert status == 1 and str(home / closed) in output, output


def test_a_data_directory_that_cannot_be_made(home):
    status, output = as_nobody(str(home / "broker.xml"))
    assert (
        status == 1
        and "user nobody cannot create directory" in output
        and f" in {home}; --data sets" in output
    )
    (home / "data").write_text("a file")
    assert f"{home / 'data'} is not a directory" in run(str(home / "broker.xml"), code=1).output


def test_users_that_cannot_be(home):
    (home / "users.properties").write_text("ada = plain\n")
    assert "users.properties:1:" in run(str(home / "broker.xml"), code=1).output


def test_another_data_directory(home):
    found = run(f"--data {home}/elsewhere {home}/broker.xml")
    assert f"journal in {home / 'elsewhere' / 'journal'}" in found.output
    assert not (home / "elsewhere").exists(), "nothing is made"
