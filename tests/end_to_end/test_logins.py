"""Logins with the company's accounts, over sockets: a directory, and the order of login modules."""

import json
from contextlib import closing

import pytest

from ..broker_process import BrokerProcess
from ..slapd import ADMIN, GROUPS, PEOPLE, SECRET, Slapd
from ..stomp_client import StompClient

PERMISSIONS = "".join(
    f'<permission type="{kind}" roles="clerks"/>'
    for kind in ("createAddress", "createNonDurableQueue", "createDurableQueue", "send", "consume", "view")
)
ACCEPTORS = """<acceptors>
  <acceptor name="stomp">tcp://127.0.0.1:0</acceptor><acceptor name="http">http://127.0.0.1:0</acceptor>
</acceptors>"""

#: As the manual of Artemis has it.
LOGIN_CONFIG = f"""
activemq {{
   org.apache.activemq.artemis.spi.core.security.jaas.LDAPLoginModule required
       debug=true
       initialContextFactory=com.sun.jndi.ldap.LdapCtxFactory
       connectionURL="{{url}}"
       connectionUsername="{ADMIN}"
       connectionPassword={SECRET}
       connectionProtocol=s
       connectionTimeout="5000"
       authentication=simple
       userBase="{PEOPLE}"
       userSearchMatching="(uid={{0}})"
       userSearchSubtree=false
       roleBase="{GROUPS}"
       roleName=cn
       roleSearchMatching="(member={{0}})"
       roleSearchSubtree=false
       ignorePartialResultException=true
       referral=ignore
       ;
}};
"""


@pytest.fixture
def slapd(tmp_path):
    (tmp_path / "slapd").mkdir()
    server = Slapd(tmp_path / "slapd")
    yield server
    server.stop()


def written(folder, inside=""):
    """A broker.xml."""
    file = folder / "broker.xml"
    security = (
        f'<security-settings><security-setting match="#">{PERMISSIONS}</security-setting></security-settings>'
    )
    file.write_text(
        f"<configuration><core>{inside}<security-invalidation-interval>0</security-invalidation-interval>"
        f"{ACCEPTORS}{security}</core></configuration>"
    )
    return file


def refusal(broker, **login):
    """The text of the ERROR that a login gets; None if it is accepted."""
    with closing(StompClient(broker.port)) as client:
        client.send("CONNECT", {"accept-version": "1.2", "host": "localhost", **login})
        frame = client.frame()
        return frame["message"] if frame.command == "ERROR" else None


def test_login_config_of_artemis_starts_unchanged_and_a_directory_that_is_down_ends_no_connection(
    tmp_path, slapd
):
    (tmp_path / "login.config").write_text(LOGIN_CONFIG.replace("{url}", slapd.url))
    with BrokerProcess(written(tmp_path)) as broker:
        assert any("3 settings have no effect here: debug of LDAPLoginModule" in line for line in broker.log)
        invalid = "User name [ada] or password is invalid"
        assert invalid in refusal(broker, login="ada", passcode="hopper")
        assert invalid in refusal(broker, login="ada", passcode="")
        with closing(broker.client()) as client:
            client.connect({"login": "ada", "passcode": "lovelace"})
            client.subscribe("a")
            http = broker.management(("ada", "lovelace"))
            assert http.get("whoami")["roles"] == ["clerks"]
            with closing(broker.client()) as other:
                other.connect({"login": "grace", "passcode": "hopper"})
                other.send("SEND", {"destination": "a"})
                other.error("User grace does not have permission='SEND' on address a")
            slapd.stop()
            assert f"cannot be checked: directory {slapd.url}" in refusal(broker, login="o", passcode="x")
            client.put("a", "still there")
            client.message("still there")
            answer, body = http.exchange("GET", "/health/ready")
            assert answer.status == 200 and slapd.url in json.loads(body)["loginFault"]
            slapd.start()
            assert refusal(broker, login="ada", passcode="lovelace") is None
            assert json.loads(http.exchange("GET", "/health/ready")[1])["loginFault"] is None
        log = "\n".join(broker.log)
        assert SECRET not in log and "lovelace" not in log
