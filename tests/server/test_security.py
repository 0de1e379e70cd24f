"""Security as the service runs it: files that change, reloads; in memory, with a clock turned by hand."""

from dataclasses import replace

import pytest

from stompring.errors import ConfigurationError
from stompring.session.connect import Credentials
from stompring.settings.model import PermissionType, SecuritySettingEntry

from ..admin.admin_server import secured

SEND, CONSUME = PermissionType.SEND, PermissionType.CONSUME
CLERKS = frozenset(("clerks",))


def house(tmp_path, **more):
    """A broker with a user, who has one role."""
    found = secured(
        tmp_path,
        {"anna": "secret"},
        "clerks = anna\n",
        SecuritySettingEntry("a", {SEND: CLERKS, CONSUME: CLERKS}),
        **more,
    )
    found.queue("a")
    return found


def test_certificates_are_those_of_their_file(tmp_path):
    file = tmp_path / "certificates"
    file.write_text("anna = CN=anna, O=Post\n")
    security = house(tmp_path, certificate_users_file=str(file)).service.security
    users = []
    for subject in ("CN=anna,O=Post", "CN=otto"):
        credentials = Credentials("anna", None, "192.0.2.1", subject)
        security.logins.authenticate(credentials, lambda login, _: users.append(login and login.user))
    assert users == ["anna", None]


def test_the_files_are_looked_at_now_and_then(tmp_path):
    found = house(tmp_path, security_invalidation_interval=4000)
    security = found.service.security
    security.start()
    reader = found.stomp(login="anna", passcode="secret")
    reader.subscribe("/queue/a")
    (tmp_path / "roles.properties").write_text("others = anna\n")
    found.reactor.advance(3.9)
    assert b"ERROR" not in reader.received
    found.reactor.advance(0.2)
    assert b"User anna does not have permission='CONSUME' on address a" in reader.received
    security.stop()
    assert security.authority.rejections == {CONSUME: 1} and not security._file_check.running


def test_a_role_that_comes_back_counts_for_who_is_connected(tmp_path):
    found = house(tmp_path)
    found.service.security.start()
    (tmp_path / "roles.properties").write_text("")
    client = found.stomp(login="anna", passcode="secret")
    (tmp_path / "roles.properties").write_text("# again\nclerks = anna\n")
    found.reactor.advance(10)
    client.put(to="/queue/a")
    assert b"ERROR" not in client.received and found.directory.queue("a").message_count == 1


def test_a_reload_brings_other_settings(tmp_path):
    found = house(tmp_path)
    client, reader = (found.stomp(login="anna", passcode="secret") for _ in range(2))
    client.put(to="/queue/a")
    reader.subscribe("/queue/a")
    new = replace(found.service.configuration, security_settings=(SecuritySettingEntry("#", {SEND: CLERKS}),))
    found.service.security.use(new)
    assert b"permission='CONSUME' on address a" in reader.received
    client.put(to="/queue/a")
    assert b"ERROR" not in client.received
    found.service.security.use(replace(new, security_settings=()))
    client.put(to="/queue/a")
    assert b"permission='SEND' on address a" in client.received


def test_what_is_missing_is_told(tmp_path, caplog):
    found = house(tmp_path)
    (tmp_path / "roles.properties").unlink()
    security = found.service.security
    security.use(replace(found.service.configuration, security_settings=()))
    security.start()
    assert f"roles file {tmp_path / 'roles.properties'} does not exist: no user has a role" in caplog.messages
    assert "no <security-setting>: no user has a permission" in caplog.messages
    (tmp_path / "users.properties").unlink()
    with pytest.raises(ConfigurationError, match="users file cannot be read"):
        security.refresh()
