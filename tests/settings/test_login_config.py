"""The users of an Artemis instance: which files ``login.config`` and ``bootstrap.xml`` beside broker.xml name."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.errors import ConfigurationError
from stompring.settings.artemis import find_logins
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.model import Guest

PROPERTIES = """
   org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule {flag}
       debug=false
       reload=true
       org.apache.activemq.jaas.properties.user="{users}"
       org.apache.activemq.jaas.properties.role="{roles}";
"""
GUEST = """
   org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule sufficient
       org.apache.activemq.jaas.guest.user="ada" org.apache.activemq.jaas.guest.role=amq;
"""


def properties(flag="required", users="people.properties", roles="groups.properties"):
    return PROPERTIES.format(flag=flag, users=users, roles=roles)


def configured(folder, inside=""):
    (folder / "broker.xml").write_text(f"<configuration><core>{inside}</core></configuration>")
    return read_broker_xml(folder / "broker.xml")


def login_config(folder, *modules, entry="activemq"):
    text = f'/* a\n comment with " and {{ */\n{entry} {{ // of the\n{"".join(modules)}\n}};\nother {{ X required; }};'
    (folder / "login.config").write_text(text)


def test_files_are_those_that_login_config_names(tmp_path):
    login_config(tmp_path, properties())
    found = configured(tmp_path)
    assert found.users_file == str(tmp_path / "people.properties")
    assert found.roles_file == str(tmp_path / "groups.properties")
    assert found.guest is None and not found.warnings


def test_the_entry_is_the_one_that_bootstrap_xml_names(tmp_path):
    login_config(tmp_path, properties(), entry="mine")
    (tmp_path / "bootstrap.xml").write_text(
        '<broker><!-- <jaas-security domain="not"/> -->\n<jaas-security domain="mine"/></broker>'
    )
    assert configured(tmp_path).users_file == str(tmp_path / "people.properties")
    login_config(tmp_path, properties(), entry="activemq")
    with pytest.raises(ConfigurationError, match=r"login\.config:1: there is no entry 'mine'"):
        configured(tmp_path)


def test_without_login_config_the_usual_file_names_are_tried(tmp_path):
    assert configured(tmp_path).users_file == str(tmp_path / "users.properties")
    (tmp_path / "artemis-users.properties").touch()
    found = configured(tmp_path)
    assert found.users_file == str(tmp_path / "artemis-users.properties")
    assert found.roles_file == str(tmp_path / "artemis-roles.properties")


def test_our_own_files_come_before_those_of_artemis(tmp_path):
    login_config(tmp_path, properties(), GUEST)
    found = configured(tmp_path, "<users-file>u</users-file><roles-file>r</roles-file>")
    assert (found.users_file, found.roles_file) == (str(tmp_path / "u"), str(tmp_path / "r"))
    (tmp_path / "users.properties").touch()
    found = configured(tmp_path)
    assert found.users_file == str(tmp_path / "users.properties")
    assert found.roles_file == str(tmp_path / "roles.properties")
    assert found.guest is None, "nobody is a guest by a file that is not used"


def test_security_off_reads_no_login_config(tmp_path):
    (tmp_path / "login.config").write_text("}")
    assert configured(tmp_path, "<security-enabled>false</security-enabled>").users_file is None


def test_guests_are_those_of_a_guest_login_module(tmp_path):
    login_config(tmp_path, properties("sufficient"), GUEST)
    found = configured(tmp_path)
    assert found.guest == Guest("ada", "amq")
    (warning,) = found.warnings
    assert warning.startswith(
        f"{tmp_path / 'login.config'}:11: GuestLoginModule: STOMP clients without login"
    )


def test_other_modules_that_are_not_required_are_passed_over_with_a_warning(tmp_path):
    login_config(tmp_path, properties("sufficient"), "com.example.LDAPLoginModule optional x=y;")
    (warning,) = configured(tmp_path).warnings
    assert "LDAPLoginModule is not supported: it logs nobody in" in warning


@pytest.mark.parametrize(
    ("modules", "fault"),
    [
        (
            (properties(), "com.example.LDAPLoginModule required;"),
            ":10: LDAPLoginModule is not supported and required",
        ),
        (("com.example.Krb5LoginModule sufficient;",), ":4: there is no PropertiesLoginModule"),
        (("X required a;",), ":4: ';' stands where '=' should be"),
        (("X required",), ":5: '}' stands where an option or ';' should be"),
    ],
)
def test_login_config_that_logs_nobody_in_is_refused_with_its_line(tmp_path, modules, fault):
    login_config(tmp_path, *modules)
    with pytest.raises(ConfigurationError) as caught:
        configured(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'login.config'}{fault}")


@pytest.mark.parametrize("name", ["ActiveMQBasicSecurityManager", "Mine"])
def test_with_another_security_manager_the_users_are_those_of_the_usual_file(tmp_path, name):
    (tmp_path / "bootstrap.xml").write_text(
        f'<broker><security-manager class-name="org.example.{name}"/></broker>'
    )
    (tmp_path / "artemis-users.properties").touch()
    login_config(tmp_path, properties(), GUEST)
    found = configured(tmp_path)
    assert found.users_file == str(tmp_path / "artemis-users.properties") and found.guest is None
    (warning,) = found.warnings
    assert f"bootstrap.xml: security-manager {name} is not supported" in warning


@given(
    st.lists(
        st.sampled_from(["a", "{", "}", ";", "=", '"', "//", "/*", "*/", "\n", " ", "X required", "é", "\\"])
    )
)
def test_any_text_is_read_or_refused(parts):
    with TemporaryDirectory() as folder:
        (Path(folder) / "login.config").write_text("".join(parts))
        try:
            find_logins(Path(folder))
        except ConfigurationError as fault:
            assert str(fault).startswith(folder)


def test_an_unfinished_login_config_is_refused(tmp_path):
    (tmp_path / "login.config").write_text("activemq {\n X required\n")
    with pytest.raises(
        ConfigurationError, match=r"login\.config:2: the file ends where an option or ';' should"
    ):
        find_logins(tmp_path)


CERTIFICATES = """
   org.apache.activemq.artemis.spi.core.security.jaas.TextFileCertificateLoginModule required
       org.apache.activemq.jaas.textfiledn.user="cert-users.properties"
       org.apache.activemq.jaas.textfiledn.role="{roles}";
"""


def with_certificates(folder, roles):
    login_config(folder, properties())
    with (folder / "login.config").open("a") as out:
        out.write(f"\ncertificates {{{CERTIFICATES.format(roles=roles)}}};\n")
    (folder / "bootstrap.xml").write_text(
        '<broker><jaas-security domain="activemq" certificate-domain="certificates"/></broker>'
    )
    return configured(folder)


def test_users_of_client_certificates_are_those_of_the_certificate_domain(tmp_path):
    found = with_certificates(tmp_path, "groups.properties")
    assert found.users_file == str(tmp_path / "people.properties")
    assert found.certificate_users_file == str(tmp_path / "cert-users.properties")
    assert not found.warnings


def test_another_roles_file_of_client_certificates_is_a_warning(tmp_path):
    (warning,) = with_certificates(tmp_path, "cert-roles.properties").warnings
    assert "the roles in cert-roles.properties are not read: add its lines to groups.properties" in warning
