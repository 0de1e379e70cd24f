"""``check-config`` refuses what a start refuses, and nothing else: both see each configuration of a table."""

import signal
import socket
import subprocess
from contextlib import closing

import pytest

from ..broker_pool import BROKER_POOL
from ..broker_process import PATIENCE
from ..ports import free_port
from ..waiting import Deadline
from .command import invoke

OFF = "<security-enabled>false</security-enabled>"
ON = '<security-settings><security-setting match="#"/></security-settings>'
HASH = "ENC(1024:8F:756C50)"
OWNED = 'user="u"'


def acceptor(url, name="s"):
    return f'<acceptor name="{name}">{url}</acceptor>'


def acceptors(*urls):
    return f"<acceptors>{''.join(acceptor(url, f'a{at}') for at, url in enumerate(urls))}</acceptors>"


def queues(*names, options=""):
    inside = "".join(
        f'<address name="{name}"><anycast><queue name="{name}" {options}/></anycast></address>'
        for name in names
    )
    return f"<addresses>{inside}</addresses>"


#: The content of <core>, and of other files in the directory of broker.xml by name.
CONFIGURATIONS = {
    "nothing wrong": (OFF + acceptors("tcp://127.0.0.1:0", "http://127.0.0.1:0") + queues("a", "b"), {}),
    "no acceptor": (OFF, {}),
    "unknown element": (f"{OFF}<nonsense/>", {}),
    "value out of range": (f"{OFF}<max-disk-usage>101</max-disk-usage>", {}),
    "no users": (ON, {}),
    "no users file of that name": (f"<users-file>people</users-file>{ON}", {}),
    "users file with a wrong line": (ON, {"users.properties": "ada = lovelace\n"}),
    "empty users file": (ON, {"users.properties": ""}),
    "users of Artemis": (ON, {"artemis-users.properties": f"ada = {HASH}\nbob = plain\n"}),
    "users of Artemis with a masked password": (
        ON,
        {"artemis-users.properties": "ada = ENC(-41e444299c6b)\n"},
    ),
    "login.config without users": (ON, {"login.config": "activemq { x.LDAPLoginModule required; };"}),
    "login.config names a missing file": (
        ON,
        {"login.config": "activemq { x.PropertiesLoginModule required; };"},
    ),
    "roles file with a wrong line": (ON, {"users.properties": "", "roles.properties": "a\n"}),
    "certificate users file that is missing": (
        f"<certificate-users-file>c</certificate-users-file>{ON}",
        {"users.properties": ""},
    ),
    "included file is missing": (
        f'{OFF}<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="a.xml"/>',
        {},
    ),
    "property that is not set": (f"{OFF}<name>${{no.such.property}}</name>", {}),
    "a port twice": (OFF + acceptors("tcp://127.0.0.1:PORT", "http://127.0.0.1:PORT"), {}),
    "a port twice by another address": (OFF + acceptors("tcp://127.0.0.1:PORT", "http://localhost:PORT"), {}),
    "any port twice": (OFF + acceptors("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"), {}),
    "localhost": (OFF + acceptors("tcp://localhost:0"), {}),
    "an address of another machine": (ON + acceptors("tcp://203.0.113.5:0"), {"users.properties": ""}),
    "a host that is no host": (ON + acceptors("tcp://no.such.host.invalid:0"), {"users.properties": ""}),
    "security off on all interfaces": (OFF + acceptors("tcp://0.0.0.0:0"), {}),
    "TLS without its files": (OFF + acceptors("ssl://127.0.0.1:0?keyStorePath=missing.pem"), {}),
    "TLS with a wrong file": (OFF + acceptors("ssl://127.0.0.1:0?keyStorePath=k.pem"), {"k.pem": "nothing"}),
    "plugin that is missing": (f'{OFF}<broker-plugins><broker-plugin name="p"/></broker-plugins>', {}),
    "plugin with a fault": (
        f'{OFF}<broker-plugins><broker-plugin name="p"/></broker-plugins>',
        {"plugins/p.py": "raise ValueError('wrong')\n"},
    ),
    "more queues than allowed": (f"{OFF}<global-max-queues>1</global-max-queues>{queues('a', 'b')}", {}),
    "more addresses than allowed": (
        f"{OFF}<global-max-addresses>1</global-max-addresses>{queues('a', 'b')}",
        {},
    ),
    "more queues of a user than allowed": (
        f"{OFF}<resource-limit-settings><resource-limit-setting match='u'><max-queues>1</max-queues>"
        f"</resource-limit-setting></resource-limit-settings>{queues('a', 'b', options=OWNED)}",
        {},
    ),
    "more wildcard words than allowed": (
        f"{OFF}<global-max-wildcard-words>1</global-max-wildcard-words>{queues('a.#.b.c.d')}",
        {},
    ),
    "queue that no queue can be": (queues("a", options='non-destructive="true" exclusive="true"') + OFF, {}),
    "directory where a file is": (f"{OFF}<journal-directory>file/journal</journal-directory>", {"file": ""}),
    "newer schema version": (OFF, {"data/schema-version": "99\n", "data/broker.lock": ""}),
    "broken schema version": (OFF, {"data/schema-version": "x\n", "data/broker.lock": ""}),
    "broken identity": (OFF, {"data/identity": "x\n", "data/broker.lock": ""}),
    "data directory of Artemis": (OFF, {"data/journal/activemq-data-1.amq": "x"}),
}


def written(folder, core, files, port):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    file = folder / "broker.xml"
    file.write_text(f"<configuration><core>{core.replace('PORT', str(port))}</core></configuration>")
    return file


def start(file):
    """Whether a broker becomes ready, which is then stopped; and what it says."""
    child = BROKER_POOL.fork(["run", "--config", str(file)])
    said = ""
    ready = False
    for line in child.stdout:
        said += line
        if "is ready" in line:
            ready = True
            child.send_signal(signal.SIGTERM)
    assert (child.wait(PATIENCE) == 0) is ready, said
    return ready, said


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_check_config_refuses_what_a_start_refuses(case, tmp_path):
    core, files = CONFIGURATIONS[case]
    file = written(tmp_path, core, files, free_port())
    checked = invoke(f"check-config {file}", code=None)
    before = sorted(path for path in tmp_path.rglob("*"))
    ready, said = start(file)
    assert (checked.exit_code == 0) is ready, f"check-config:\n{checked.output}\nrun:\n{said}"
    assert "Traceback" not in said and "Traceback" not in checked.output
    assert [path.name for path in before if path.name == "broker.lock"] == (
        ["broker.lock"] if "data/broker.lock" in files else []
    ), "check-config creates nothing"


def test_a_port_and_a_data_directory_in_use_are_reported_and_no_faults(tmp_path):
    """The process that uses them may be the broker with this very configuration, which is to be reloaded."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        file = written(tmp_path, OFF + acceptors("tcp://127.0.0.1:PORT"), {}, port)
        checked = invoke(f"check-config {file}", code=None)
        ready, said = start(file)
    assert not ready and f"cannot listen on 127.0.0.1:{port}" in said
    assert checked.exit_code == 0
    assert f"cannot listen on 127.0.0.1:{port} now: the port is in use; a start is refused" in checked.stdout

    held = subprocess.Popen(
        ["flock", "-x", str(tmp_path / "data" / "broker.lock"), "cat"], stdin=subprocess.PIPE
    )
    try:
        deadline = Deadline()
        while "in use" not in (checked := invoke(f"check-config {file}", code=None)).stdout:
            assert not deadline.passed()
        ready, said = start(file)
    finally:
        held.communicate()
    assert not ready and "the data directory is in use" in said
    assert checked.exit_code == 0 and not checked.stderr
    assert (
        f"pages in {tmp_path / 'data' / 'paging'} (in use by a running broker: another start is refused)"
        in (checked.stdout)
    )
