"""Logins with the company's accounts, over sockets: a directory, and the order of login modules."""

import json
import time
from contextlib import closing

import pytest
from joserfc.jwk import ECKey, KeySet
from joserfc.jwt import encode

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
            assert json.loads(http.exchange("GET", "/api/v1/whoami")[1])["roles"] == ["clerks"]
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
            assert invalid in refusal(broker, login="ada", passcode="hopper")
            assert json.loads(http.exchange("GET", "/health/ready")[1])["loginFault"] is None
        log = "\n".join(broker.log)
        assert SECRET not in log and "lovelace" not in log


KEY = ECKey.generate_key("P-256", {"kid": "k"})


def token(seconds, **claims):
    """A token that ends after some seconds."""
    known = {"iss": "https://issuer", "aud": "b", "exp": time.time() + seconds, "groups": "clerks"}
    return encode({"alg": "ES256", "kid": "k"}, {**known, **claims}, KEY)


def test_a_token_is_a_login_until_it_ends(tmp_path, slapd):
    (tmp_path / "keys.json").write_text(json.dumps(KeySet([KEY]).as_dict()))
    directory = f'''<ldap connection-url="{slapd.url}" connection-username="{ADMIN}" connection-password="{SECRET}"
      user-base="{PEOPLE}" user-search-matching="(uid={{0}})" role-base="{GROUPS}" role-name="cn"
      role-search-matching="(member={{0}})"'''
    modules = f"""<login-modules>{directory} authenticate-user="false"/>{directory}/>
      <token issuer="https://issuer" audience="b" keys="keys.json" user-claim="name" roles-claim="groups"/>
    </login-modules>"""
    with BrokerProcess(written(tmp_path, modules)) as broker:
        short = token(3, name="ada")
        with closing(broker.client()) as client:
            client.connect({"passcode": short})
            client.subscribe("a")
            client.put("a", "before")
            client.message("before")
            client.error("The login of user ada has expired")
            client.closed()
        assert "the token is not accepted: it has expired" in refusal(broker, passcode=short)
        assert "not accepted: " in refusal(broker, login="ada", passcode=token(60, name="ada", aud="c"))
        assert "login and passcode are required" in refusal(broker, passcode="no token")
        assert refusal(broker, login="ada", passcode="lovelace") is None
        http = broker.management()
        for scheme, status in (("Bearer", 200), ("bearer", 200), ("Basic", 401)):
            answer, body = http.exchange(
                "GET", "/api/v1/whoami", Authorization=f"{scheme} {token(60, name='grace')}"
            )
            assert answer.status == status
            if status == 200:
                assert json.loads(body)["user"] == "grace"
                assert json.loads(body)["roles"] == ["admins", "clerks"], "the directory adds one"
        assert short not in "\n".join(broker.log)
