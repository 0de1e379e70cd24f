"""Stock clients of other languages: each program below ``clients/`` holds one conversation and checks it itself.

They are started as ``PROGRAM host port prefix`` and print ``ok`` at their end; anything else they say is the fault.
What all of them do: send messages with UTF-8 in body and headers, take them with client-individual acknowledgements,
transactions where the client knows them, and a ring of three that keeps B, C and D.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from ..broker_process import PATIENCE

CLIENTS = Path(__file__).parent / "clients"

pytestmark = pytest.mark.broker(settings={"ring3.#": {"default-ring-size": 3}})

#: The program, its interpreter, how to see whether its library is there, and what to install where it is not.
PROGRAMS = [
    ("client.rb", ("ruby",), ("-e", "require 'stomp'"), "the Debian package ruby-stomp"),
    ("client.pl", ("perl",), ("-MNet::Stomp", "-e", "1"), "the Debian package libnet-stomp-perl"),
    ("client.php", ("php",), ("-r", "exit(class_exists('Stomp') ? 0 : 1);"), "the Debian package php-stomp"),
    ("stompjs.js", ("node",), ("-e", "require('@stomp/stompjs')"), "npm ci in tests/end_to_end/clients"),
    ("stompit.js", ("node",), ("-e", "require('stompit')"), "npm ci in tests/end_to_end/clients"),
]


def missing(interpreter, probe):
    """Whether the client cannot be run here."""
    if shutil.which(interpreter[0]) is None:
        return True
    return (
        subprocess.run([*interpreter, *probe], cwd=CLIENTS, capture_output=True, check=False).returncode != 0
    )


@pytest.mark.parametrize(
    "program, interpreter, probe, package", PROGRAMS, ids=[program for program, *_ in PROGRAMS]
)
def test_a_stock_client(broker, management, program, interpreter, probe, package):
    if missing(interpreter, probe):
        pytest.skip(f"{interpreter[0]} is not installed with its STOMP client: {package}")
    prefix = program.replace(".", "-")
    ran = subprocess.run(
        [*interpreter, program, "127.0.0.1", str(broker.port), prefix],
        cwd=CLIENTS,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert ran.returncode == 0 and ran.stdout.splitlines()[-1:] == ["ok"], ran.stdout + ran.stderr
    # and the broker saw it the same way
    management.expect(f"{prefix}.work", messageCount=0, messagesAdded=20, messagesAcknowledged=20)
    management.expect(f"ring3.{prefix}", messageCount=0, messagesReplaced=1, messagesAcknowledged=3)
