"""Headers that the broker adds: the user (``populate-validated-user``) and the time of arrival."""

import pytest

from stompring.session.connect import Login
from stompring.session.destination import AllowAll

from .session_fixture import Server


class Verified:
    """Every login is right."""

    def authenticate(self, credentials, answer):
        answer(Login(credentials.login, AllowAll(), verified=True), "")


def client_of(server, templates=False, **headers):
    client = server.client(**headers)
    client.subscribe()
    if templates:
        client.session._parser._heads.memo.rest = 1_000_000
    return client


@pytest.mark.parametrize("templates", [False, True])
@pytest.mark.parametrize("more", [{}, {"persistent": "true"}])
def test_messages_have_the_user_who_sent_them_and_no_client_sets_another(templates, more):
    server = Server(authenticator=Verified(), populate_validated_user=True)
    client = client_of(server, templates, login="a:b\\c")
    for number in range(5):
        client.send(b"", JMSXUserID="root", n=number, **more)
        message = client.one("MESSAGE")
        assert message["JMSXUserID"] == "a:b\\c" and message["n"] == str(number)
    assert client.read() == []


@pytest.mark.parametrize(
    "server",
    [
        Server(authenticator=Verified()),
        Server(populate_validated_user=True),  # security is off: a client says who it is
    ],
    ids=["off", "not verified"],
)
def test_users_are_not_added_where_that_is_off_or_nothing_verifies_them(server):
    client = client_of(server, login="ada")
    client.send(b"", JMSXUserID="root")
    assert "JMSXUserID" not in client.one("MESSAGE").headers


def test_selectors_see_the_user_by_both_names():
    server = Server(authenticator=Verified(), populate_validated_user=True)
    for selector, matches in (
        ("JMSXUserID = 'ada'", True),
        ("_AMQ_VALIDATED_USER = 'ada'", True),
        ("_AMQ_VALIDATED_USER = 'bob'", False),
    ):
        client = server.client(login="ada")
        client.subscribe("/topic/t", selector=selector)
        client.send(b"", "/topic/t")
        assert bool(client.read()) is matches


@pytest.mark.parametrize("templates", [False, True])
@pytest.mark.parametrize("more", [{}, {"persistent": "true"}, {"AMQ_SCHEDULED_DELAY": "1000"}])
def test_messages_have_the_time_at_which_they_came(templates, more):
    server = Server({"q": {"enable_ingress_timestamp": True}})
    client = client_of(server, templates)
    for number in range(3):
        now = server.world.now
        forged = {"_AMQ_INGRESS_TIMESTAMP": "1", "ingress_timestamp": "1"}
        client.send(b"", n=number, **forged, **more)
        server.pass_time(2000)
        message = client.one("MESSAGE")
        assert message["ingress-timestamp"] == message["_AMQ_INGRESS_TIMESTAMP"] == str(now)


def test_selectors_see_the_time_of_arrival_as_a_number():
    server = Server({"#": {"enable_ingress_timestamp": True}})
    now = server.world.now
    for selector, matches in (
        (f"_AMQ_INGRESS_TIMESTAMP >= {now}", True),
        ("_AMQ_INGRESS_TIMESTAMP < 5", False),
    ):
        client = server.client()
        client.subscribe("/topic/t", selector=selector)
        client.send(b"", "/topic/t")
        assert bool(client.read()) is matches


def test_addresses_without_the_setting_pay_and_add_nothing():
    client = client_of(Server({"other": {"enable_ingress_timestamp": True}}))
    client.send(b"")
    assert "ingress-timestamp" not in client.one("MESSAGE").headers
