"""What the clients of a campaign were promised, and whether a broker that was started again keeps it."""

import time
from abc import ABC, abstractmethod

from ..cli.command import invoke
from . import topology
from .administrator import ADDRESS_ATTRIBUTES, Bindings
from .audit import NOTICE, Audit, everything, observe
from .duplicates import Identifiers
from .ledger import Ledger


class Promises(ABC):
    """The account of a campaign over all lives of its brokers."""

    def __init__(self):
        self.ledger = Ledger()
        self.identifiers = Identifiers()
        self.bindings = Bindings()
        self.addresses = Bindings("address", ADDRESS_ATTRIBUTES)
        self.groups = topology.groups()

    @abstractmethod
    def raise_faults(self, faults):
        """Raise `BrokenPromise` if there are any."""

    def compare(self, management, client, data, but=()):
        """Compare with what a broker has in its queues, ``but`` some, and go on from there; returns how many messages.

        ``data`` is its directory, if it has one. Nobody but the connected ``client`` sends meanwhile.
        """
        self.ledger.forget_done()
        ready = time.monotonic()
        while True:
            found = observe(management, but)
            audit = Audit(self.ledger, self.groups, found)
            # what became due or expired while the broker was down may take a moment
            late = {fault.rule for fault in audit.faults} & {"too late", "overdue"}
            if not late or time.monotonic() > ready + NOTICE / 1000:
                break
            time.sleep(0.1)
        self.raise_faults(audit.faults)
        self.identifiers.settle(audit.present.keys())
        self.identifiers.offer(self.ledger, client, management)
        self.raise_faults(self.ledger.faults)
        self.bindings.audit(self.ledger, found.queues)
        addresses = everything(management, "/addresses", size=1000)
        self.addresses.audit(self.ledger, {address["name"]: address for address in addresses})
        if data is not None:
            self.verify(data)
        self.ledger.next_life(set(audit.present))
        for copy, seen in audit.present.items():
            copy.attempts = seen.attempts if seen.place == copy.queue else copy.attempts
        self.raise_faults(self.ledger.faults)
        return len(audit.present)

    def verify(self, data):
        """``stompring data verify`` finds nothing."""
        done = invoke("data verify --data", data, code=None)
        for finding in done.stdout.splitlines() or [done.output] * (done.exit_code != 0):
            self.ledger.fault("verify", finding)
        self.raise_faults(self.ledger.faults)
