"""A broker that is not active any more: what it has sent and clients have not received does not reach them."""

import os
import socket
import subprocess
import sys

import pytest

SIZE = 1_000_000

#: Sends more than the client reads, then ends as a broker does that was replaced.
SENDER = """
import os, socket, sys
from stompring.server.standby import discard_unsent
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.setblocking(False)
sent, data = 0, bytes(65536)
try:
    while sent < int(sys.argv[2]):
        sent += connection.send(data)
except BlockingIOError:
    pass
if sys.argv[3] == "discard":
    discard_unsent()
print(sent, flush=True)
os._exit(75)
"""


@pytest.mark.parametrize("end, complete", [("discard", False), ("exit", True)])
def test_unsent_data_is_discarded_at_the_end(end, complete):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        command = [sys.executable, "-c", SENDER, str(port), str(SIZE), end]
        ended = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
        assert ended.returncode == 75, ended.stderr
        client, _ = listener.accept()
        received = 0
        with client:
            client.settimeout(60)
            try:
                while data := client.recv(65536):
                    received += len(data)
            except ConnectionResetError:
                pass
    assert (received == int(ended.stdout)) == complete
