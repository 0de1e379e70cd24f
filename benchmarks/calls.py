"""Number of function calls, by module, for one SEND, from the session to its queue and its RECEIPT.

python -m benchmarks.calls [CASE …]

Each case sends a few equal frames to a broker in memory, as pure Python, and counts the calls for the next frame, in
all threads. It leaves out `stompring.server`, since there is no socket. A comprehension counts as a call.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

import click

import stompring
from tests.broker_document import broker_xml
from tests.service import Service

PACKAGE = str(Path(stompring.__file__).parent) + "/"
EQUAL = 4  # frames before the counted one

BODY = b"x" * 128

#: The destination of each case, and whether its messages are durable and have a receipt.
CASES = {"plain": ("direct", False), "persistent": ("durable", True), "paged": ("paged", True)}
PAGED = {"max-size-messages": 0, "page-size-bytes": "1M"}


class CallCount:
    """A counter of calls of the package's functions while it is ``open``, by module."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()
        self.open = False
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if (
            self.open
            and event == "call"
            and path.startswith(PACKAGE)
            and not path.startswith(PACKAGE + "server/")
        ):
            self.modules[path.removeprefix(PACKAGE).removesuffix(".py")] += 1

    def close(self) -> None:
        """Remove the profile functions."""
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def count(case: str) -> Counter[str]:
    """Count the calls of a case by module."""
    destination, receipt = CASES[case]
    calls = CallCount()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        service = Service(root, root / "data").start(broker_xml(settings={"paged": PAGED}))
        client = service.client()
        client.connect()
        for number in range(EQUAL + 1):
            calls.open = number == EQUAL
            if receipt:
                client.put(destination, BODY, persistent="true")
            else:
                client.send("SEND", {"destination": destination}, BODY)
                client.time.sleep(0.01)  # a busy machine serves the connection in a later time slice
        calls.open = False
        service.stop()
    calls.close()
    return calls.modules


@click.command(help=__doc__)
@click.argument("cases", nargs=-1, type=click.Choice([*CASES]))
def main(cases: tuple[str, ...]) -> None:
    """Print a table for each case."""
    for case in cases or CASES:
        modules = count(case)
        print(f"{case}: {modules.total()} calls in {len(modules)} modules")
        for module, calls in modules.most_common():
            print(f"  {calls:4} {module}")


if __name__ == "__main__":
    main()
