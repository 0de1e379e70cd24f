"""Certificate users files."""

import pytest

from stompring.errors import ConfigurationError
from stompring.security.certificates import CertificateUsers


@pytest.fixture
def path(tmp_path):
    return tmp_path / "certificates.properties"


@pytest.mark.parametrize(
    "subject, user",
    [
        ("CN=ada,O=Analytical,C=GB", "ada"),
        ("cn=ada, o=Analytical , C = GB", "ada"),
        ("CN=Ada,O=Analytical,C=GB", None),  # values are as they are
        ("O=Analytical,CN=ada,C=GB", None),  # and so is their order
        ("CN=ada", None),
        (r"CN=Hopper\, Grace,O=Navy", "grace"),
        ("", None),
    ],
)
def test_user_of_a_certificate(path, subject, user):
    path.write_text(
        "# subjects\nada = CN=ada, O=Analytical, C=GB\n" + r"grace = cn=Hopper\, Grace,O=Navy" + "\n"
    )
    assert CertificateUsers(path).user_of(subject) == user


@pytest.mark.parametrize(
    "line, fault",
    [
        ("ada", "a line must be 'user = subject"),
        ("x = ada", "a line must be 'user = subject"),
        ("ok = CN=other", "user 'ok' is already in line 1"),
        ("x = cn=ok", "certificate 'CN=ok' is already in line 1"),
        ("x = /CN=.*/", "patterns are not supported"),
        (" = CN=x", "a user name cannot be empty"),
    ],
)
def test_errors_are_reported_with_their_line(path, line, fault):
    path.write_text(f"ok = CN=ok\n{line}\n")
    with pytest.raises(ConfigurationError, match=f"^{path}:2: .*{fault}"):
        CertificateUsers(path)


def test_file_is_required_and_read_again_when_changed(path):
    with pytest.raises(ConfigurationError, match="certificate users file cannot be read"):
        CertificateUsers(path)
    path.write_text("ada = CN=ada\n")
    users = CertificateUsers(path)
    path.write_text("ada = CN=ada\nbob = CN=bob\n")
    users.refresh_or_log()
    assert users.user_of("CN=bob") == "bob"
