"""Every broker.xml of Artemis's examples: `stompring run` starts with it, but for those that docs/artemis.md lists.

``STOMPRING_ARTEMIS_EXAMPLES`` names a checkout of Artemis's repository of examples. Each file is used as it is, in a
copy of its directory; only the ports of its acceptors are replaced by free ones, and an instance without users gets
those that ``artemis create`` would have made.
"""

import os
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

from ..broker_process import BrokerProcess
from ..docs.artemis_examples import by_reason

VARIABLE = "STOMPRING_ARTEMIS_EXAMPLES"
DIRECTORY = Path(os.environ.get(VARIABLE, ""))
FILES = sorted(DIRECTORY.rglob("src/main/resources/**/broker.xml")) if VARIABLE in os.environ else []

pytestmark = [
    pytest.mark.skipif(not FILES, reason=f"{VARIABLE} does not name a checkout of the examples of Artemis"),
    pytest.mark.timeout(1800),
]

#: Why a file does not start, by what its faults say. The first that is found counts.
REASONS = {
    "high availability": r"<ha-policy>",
    "cluster": r"<cluster-connections>|<grouping-handler>|<broadcast-groups>|<discovery-groups>",
    "federation": r"<federations>",
    "AMQP connections to other brokers": r"<broker-connections>",
    "routing of clients to other brokers": r"<connection-routers>",
    "no acceptor speaks STOMP": r"no acceptor speaks STOMP",
    "Java plugin, interceptor or transformer": r"interceptors>|class-name",
    "login module": r"LoginModule",
    "a keystore with an invalid certificate": r"a certificate in it is not valid",
}

PORT = re.compile(r"(<acceptor\b[^>]*>\s*(?:tcp|http|https)://[^:/?<]+):\d+")


def example(file):
    """``protocols/stomp/stomp``: the directory of an example."""
    path = file.relative_to(DIRECTORY).as_posix().partition("/src/main/")[0]
    return path.removeprefix("examples/")


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """The examples that do not start, by the reason."""
    found = defaultdict(set)
    for number, file in enumerate(FILES):
        fault = _fault(file, tmp_path_factory.mktemp(f"example-{number}"))
        if fault is not None:
            reason = next((each for each, words in REASONS.items() if re.search(words, fault)), fault)
            found[reason].add(example(file))
    return dict(found)


def _fault(file, root):
    """What keeps a broker from starting with this file, None where it starts. `check-config` says the same before."""
    etc = root / "etc"
    shutil.copytree(file.parent, etc)
    config = etc / "broker.xml"
    config.write_text(PORT.sub(r"\1:0", file.read_text()))
    for name, text in (("artemis-users.properties", "u = p\n"), ("artemis-roles.properties", "amq = u\n")):
        if not (etc / name).exists():
            (etc / name).write_text(text)
    checked = CliRunner().invoke(main, ["check-config", str(config)])
    process = BrokerProcess(config, root / "data")
    try:
        with process:
            assert checked.exit_code == 0, f"{file} starts, and check-config refuses it: {checked.output}"
            return None
    except AssertionError:
        if checked.exit_code == 0:
            raise
    return checked.stderr or checked.output


def test_only_the_listed_examples_do_not_start(refused):
    assert refused == {reason: {*names} for reason, names in by_reason().items()}


def test_the_others_are_many():
    assert len({example(file) for file in FILES} - set().union(*by_reason().values())) > 40
