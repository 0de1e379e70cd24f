"""Duplicate ids over a kill: what the broker knows by its id is sent once more, and must not be there once more."""

from collections import deque
from dataclasses import dataclass

from .ledger import Copy, State, Unit

#: Ids of one destination that are sent again: the latest.
KEPT = 150


@dataclass(eq=False)
class Sent:
    """A durable message with an id. ``known`` says that a look after a kill has shown it to be there."""

    identifier: str
    unit: Unit
    copies: tuple[Copy, ...]
    known: bool = False


class Identifiers:
    """What was sent with ids, by destination."""

    def __init__(self):
        self._sent = {}

    def note(self, destination, identifier, unit, copies):
        """A message was sent, by a unit that may be in doubt yet."""
        sent = self._sent.setdefault(destination, deque(maxlen=KEPT))
        sent.append(Sent(identifier, unit, tuple(copies)))

    def receipted(self):
        """Whether one is known for certain, and so can be sent again after a kill."""
        return any(one.unit.state is State.DONE for sent in self._sent.values() for one in sent)

    def settle(self, present):
        """After a kill: what was receipted is known, and so is what is there; of what is not nobody can tell."""
        for destination, sent in self._sent.items():
            for one in sent:
                there = any(copy in present for copy in one.copies)
                one.known = one.known or there or one.unit.state is State.DONE
            self._sent[destination] = deque((one for one in sent if one.known), KEPT)

    def offer(self, ledger, client, management):
        """Send all of it again by a connected client. Nobody else may send meanwhile."""
        for destination, sent in self._sent.items():
            if sent:
                self._offer(ledger, client, management, destination, sent)
        client.disconnect()

    @staticmethod
    def _offer(ledger, client, management, destination, sent):
        name = destination.removeprefix("/topic/")
        before = _counts(management, name)
        for one in sent:
            headers = {"destination": destination, "persistent": "true", "_AMQ_DUPL_ID": one.identifier}
            client.send("SEND", headers, b"again/1|")
            ledger.count("ids sent again")
        client.ask("BEGIN", {"transaction": "all before it"})
        client.ask("ABORT", {"transaction": "all before it"})
        routed, duplicates = (
            after - earlier for after, earlier in zip(_counts(management, name), before, strict=True)
        )
        if routed or duplicates != len(sent):
            detail = f"of {len(sent)} ids that {destination} had, {routed} were routed again"
            ledger.fault("duplicate", f"{detail}, {duplicates} known")


def _counts(management, name):
    found = management.address(name)
    return found["routedMessageCount"], found["duplicateMessageCount"]
