"""The users of an Artemis instance: which files ``login.config`` and ``bootstrap.xml`` beside broker.xml name."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.errors import ConfigurationError
from stompring.settings.artemis import find_logins
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.model import Guest, LdapAuthentication, LdapLogin, LoginFlag, LoginModule

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

LDAP = """com.example.LDAPLoginModule required
    connectionURL="ldap://d" connectionUsername="cn=b" connectionPassword=p {};"""


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
    login_config(tmp_path, properties("sufficient"), "com.example.SCRAMLoginModule optional x=y;")
    (warning,) = configured(tmp_path).warnings
    assert "SCRAMLoginModule is not supported: it logs nobody in" in warning


def test_ldap_login_module_has_the_options_of_artemis_and_the_short_form_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("LDAP_PASSWORD", "from outside")
    options = """debug=true initialContextFactory=com.sun.jndi.ldap.LdapCtxFactory connectionProtocol=s
      connectionURL="ldap://a:1 ldaps://b/dc=x" connectionUsername="cn=b" connectionPassword="${env:LDAP_PASSWORD}"
      authentication=simple userBase="ou=u" userSearchMatching="(uid={0})" userSearchSubtree=true roleBase="ou=r"
      roleName=cn roleSearchMatching="(member={0})" roleSearchSubtree=true userRoleName="" expandRoles=true
      expandRolesMatching="(member={0})" saslLoginConfigScope=x authenticateUser=true referral=follow
      ignorePartialResultException=true passwordCodec=C connectionTimeout="3000" readTimeout=4000
      noCacheExceptions="a,b" com.sun.jndi.ldap.connect.pool=true"""
    login_config(tmp_path, properties("sufficient"), f"x.LDAPLoginModule requisite {options};")
    found = configured(tmp_path)
    expected = LdapLogin(
        "ldap://a:1 ldaps://b/dc=x",
        "cn=b",
        "from outside",
        LdapAuthentication.SIMPLE,
        "s",
        user_base="ou=u",
        user_search_matching="(uid={0})",
        user_search_subtree=True,
        role_base="ou=r",
        role_name="cn",
        role_search_matching="(member={0})",
        role_search_subtree=True,
        expand_roles=True,
        expand_roles_matching="(member={0})",
        connection_timeout=3000,
        read_timeout=4000,
        flag=LoginFlag.REQUISITE,
    )
    assert found.login_modules == (LoginModule("properties"), expected)
    assert "from outside" not in repr(found) and found.uses_users_file
    assert [each.name.split()[0] for each in found.ignored] == [
        "debug", "initialContextFactory", "saslLoginConfigScope", "referral", "ignorePartialResultException",
        "passwordCodec", "noCacheExceptions", "com.sun.jndi.ldap.connect.pool",
    ]  # fmt: skip
    assert [warning.partition(": ")[2] for warning in found.warnings] == [
        "referral of LDAPLoginModule: referrals are never followed",
        "com.sun.jndi.ldap.connect.pool of LDAPLoginModule: only Java's LDAP client uses it",
    ]
    short = configured(
        tmp_path,
        """<login-modules><properties/><ldap flag="requisite" connection-url="ldap://a:1 ldaps://b/dc=x"
        connection-username="cn=b" connection-password="${env:LDAP_PASSWORD}" connection-protocol="s" user-base="ou=u"
        user-search-matching="(uid={0})" user-search-subtree="true" role-base="ou=r" role-name="cn"
        role-search-matching="(member={0})" role-search-subtree="true" expand-roles="true"
        expand-roles-matching="(member={0})" connection-timeout="3000" read-timeout="4000"/></login-modules>""",
    )
    assert short.login_modules == found.login_modules and short.users_file == str(
        tmp_path / "users.properties"
    )
    login_config(tmp_path, LDAP.format(""))
    assert not configured(tmp_path).uses_users_file
    modules = "<login-modules><certificate/></login-modules><users-file>u</users-file>"
    assert "no user of <users-file> can log in by a password" in configured(tmp_path, modules).warnings[0]


@pytest.mark.parametrize(
    "modules, fault",
    [
        (
            (properties(), "com.example.SCRAMLoginModule required;"),
            ":10: SCRAMLoginModule is not supported and required",
        ),
        (("com.example.Krb5LoginModule sufficient;",), ":4: there is no PropertiesLoginModule"),
        (("X always a=b;",), ":4: 'always' is not a flag of a login module"),
        (("LDAPLoginModule required;",), ":4: LDAPLoginModule: there is no connectionURL"),
        (
            (LDAP.format('connectionURL="http://x"'),),
            ":4: LDAPLoginModule: connectionURL must be ldap://host:389",
        ),
        (
            (LDAP.format("authentication=GSSAPI"),),
            ":4: LDAPLoginModule: authentication must be one of SIMPLE, NONE",
        ),
        (
            (LDAP.format('connectionPassword="ENC(54)"'),),
            ":4: LDAPLoginModule: the password is encoded, and the key is",
        ),
        (
            (LDAP.format('connectionUsername=""'),),
            ":4: LDAPLoginModule: user name and password of the connection are",
        ),
        (
            (LDAP.format("expandRoles=true"),),
            ":4: LDAPLoginModule: the filter that finds the roles that contain a role is",
        ),
        ((LDAP.format("expandRoles=yes"),), ":4: LDAPLoginModule: expandRoles must be true or false"),
        (("X required a;",), ":4: ';' stands where '=' should be"),
        (("X required",), ":5: '}' stands where an option or ';' should be"),
    ],
)
def test_login_config_that_logs_nobody_in_is_refused_with_its_line(tmp_path, modules, fault):
    login_config(tmp_path, *modules)
    with pytest.raises(ConfigurationError, match=f"^{tmp_path / 'login.config'}{fault}"):
        configured(tmp_path)


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
