"""Logins by LDAP, against a real directory."""

from dataclasses import replace

import pytest

from stompring.errors import Refused
from stompring.settings.document import Secret
from stompring.settings.model import LdapAuthentication, LdapLogin

from ..login_sources import source_of
from ..slapd import ADMIN, BASE, GROUPS, PEOPLE, SECRET, Slapd


@pytest.fixture(scope="module")
def slapd(tmp_path_factory):
    server = Slapd(tmp_path_factory.mktemp("slapd"))
    yield server
    server.stop()


@pytest.fixture
def settings(slapd):
    return LdapLogin(
        slapd.url,
        ADMIN,
        Secret(SECRET),
        user_base=PEOPLE,
        user_search_matching="(uid={0})",
        role_base=GROUPS,
        role_search_matching="(member={0})",
        role_name="cn",
    )


CLERK = {"clerks"}


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, CLERK),
        ({"user_base": BASE}, None),
        ({"user_base": BASE, "user_search_subtree": True}, CLERK),
        ({"role_base": BASE}, set()),
        ({"role_base": BASE, "role_search_subtree": True}, CLERK),
        ({"role_name": None}, {f"cn=clerks,{GROUPS}"}),
        ({"role_search_matching": None}, set()),
        ({"role_search_matching": "(&(cn=clerks)(member=uid={1},ou=people,dc=example,dc=org))"}, CLERK),
        ({"user_role_name": "seeAlso"}, {"clerks", "writers"}),
        ({"user_role_name": "seeAlso", "role_name": None}, {f"cn=clerks,{GROUPS}", f"cn=writers,{GROUPS}"}),
        ({"expand_roles": True, "expand_roles_matching": "(member={0})"}, {"clerks", "staff", "everyone"}),
        ({"authentication": LdapAuthentication.NONE, "connection_username": None}, CLERK),
        ({"user_search_matching": "(mail={0})"}, None),
        ({"user_search_matching": "(&(objectClass=person)(uid={0}))"}, CLERK),
    ],
)
def test_options_of_the_searches(settings, changes, expected):
    found = source_of(replace(settings, **changes)).check("ada", "lovelace")
    assert expected == (found and found.roles)


def test_base_in_the_url_and_a_server_that_is_down(settings, slapd):
    url = f"ldap://127.0.0.1:9/ {slapd.url}/"
    short = replace(settings, user_base="ou=people", role_base="ou=groups", connection_url=url)
    for base in ("", BASE):
        directory = source_of(replace(short, connection_url=url.replace("/ ", f"/{base} ") + base))
        assert (directory.check("ada", "lovelace") is not None) is bool(base) if base else True


def test_the_login_may_be_the_dn(settings):
    directory = source_of(replace(settings, user_search_matching=None))
    assert directory.check(f"uid=ada,{PEOPLE}", "lovelace").roles == CLERK
    for login in (f"uid=ada,{PEOPLE}", "ada", "=", f"uid=no,{PEOPLE}"):
        assert directory.check(login, "hopper") is None


@pytest.mark.parametrize(
    "login, password, user",
    [
        ("ada", "lovelace", "ada"),
        ("ADA", "lovelace", "ada"),
        (" ada ", "lovelace", "ada"),
        ("o)(uid=*", "parentheses", "o)(uid=*"),
        ("ada", "hopper", None),
        ("ada", "", None),
        ("", "", None),
        ("nobody", "lovelace", None),
        ("*", "lovelace", None),
        ("a*", "lovelace", None),
        ("ada)(uid=*", "lovelace", None),
        ("x)(|(uid=ada)", "lovelace", None),
        ("\\61da", "lovelace", None),
        ("ada\0", "lovelace", None),
        ("ada", "lovelace\0", None),
        ("ada", "lovelace\udcff", None),
        ("ada\udcff", "lovelace", None),
        (f"uid=ada,{PEOPLE}", "lovelace", None),
    ],
)
def test_logins_right_and_hostile(settings, login, password, user):
    found = source_of(settings).check(login, password)
    assert user == (found and found.user)


def test_an_empty_password_never_reaches_the_directory(settings, slapd):
    """A directory takes it as an anonymous bind, which succeeds."""
    slapd.freeze()
    try:
        assert source_of(settings).check("ada", "") is None
    finally:
        slapd.freeze(still=False)


def test_referrals_are_not_followed(settings):
    found = source_of(replace(settings, user_base=f"ou=far,ou=elsewhere,{BASE}"))
    with pytest.raises(Refused, match="referral"):
        found.check("ada", "lovelace")
    whole = replace(settings, user_base=BASE, user_search_subtree=True)
    assert source_of(whole).check("ada", "lovelace")


def test_roles_of_a_user_whom_another_module_logged_in(settings):
    directory = source_of(replace(settings, authenticate_user=False))
    assert directory.check("grace", "") == ("grace", {"admins"}, None)
    assert directory.check("nobody", "").roles == frozenset()


def test_a_directory_that_is_down_or_silent_is_a_fault_with_its_reason(settings, slapd, caplog):
    directory = source_of(replace(settings, read_timeout=1000, connection_timeout=1000))
    assert directory.fault is None
    for fail, back in ((slapd.stop, slapd.start), (slapd.freeze, lambda: slapd.freeze(still=False))):
        fail()
        for _ in range(2):
            with pytest.raises(Refused, match=r"cannot be checked: directory ldap://127.0.0.1") as caught:
                directory.check("ada", "lovelace")
            assert caught.value.status == 502 and directory.fault in str(caught.value)
        back()
        assert directory.check("ada", "lovelace") and directory.fault is None
    wrong = source_of(replace(settings, connection_password=Secret("not-this-one")))
    with pytest.raises(Refused, match="refuses the broker's own login with invalidCredentials"):
        wrong.check("ada", "lovelace")
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 3, "the same fault is logged once"
    for secret in (SECRET, "lovelace", "not-this-one"):
        assert secret not in caplog.text and secret not in repr(settings)


@pytest.mark.parametrize("how", ["ldaps", "ssl", "StartTLS"])
def test_tls_verifies_the_directory(settings, slapd, how, tmp_path):
    port = slapd.port if how == "StartTLS" else slapd.tls_port
    scheme = "ldaps" if how == "ldaps" else "ldap"
    changes = {"start_tls": how == "StartTLS", "connection_protocol": "ssl" if how == "ssl" else ""}

    def login(host, authority):
        url = f"{scheme}://{host}:{port}"
        path = None if authority is None else str(authority)
        chosen = replace(settings, connection_url=url, trust_store_path=path, **changes)
        return source_of(chosen).check("ada", "lovelace")

    assert login("127.0.0.1", slapd.authority.file) and login("localhost", slapd.authority.file)
    for host, authority in (("127.0.0.1", None), ("127.0.0.2", slapd.authority.file)):
        with pytest.raises(Refused, match="certificate|refused"):
            login(host, authority)
