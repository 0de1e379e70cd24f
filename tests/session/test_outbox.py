"""What waits to be written."""

from stompring.session.outbox import ROOM, Outbox, Outgoing

from ..broker.broker_fixture import BrokerFixture
from .session_fixture import RecordingWire


class Box:
    def __init__(self, outgoing):
        self.wire = RecordingWire()
        self.said = []
        self.outbox = Outbox(
            self.wire, outgoing, lambda: self.said.append("full"), lambda: self.said.append("room")
        )


def test_within_a_read_everything_is_written_in_one_piece():
    outgoing = Outgoing(BrokerFixture().broker.clock)
    one, two = Box(outgoing), Box(outgoing)
    outgoing.within_read = True
    for part in (b"a", b"b"):
        one.outbox.send(part)
        two.outbox.send(part)
    assert one.wire.writes == 0
    outgoing.flush()
    assert (one.wire.written, one.wire.writes, two.wire.written) == (b"ab", 1, b"ab")
    outgoing.flush()
    assert one.wire.writes == 1


def test_otherwise_it_is_written_soon():
    world = BrokerFixture()
    box = Box(Outgoing(world.broker.clock))
    box.outbox.send(b"a")
    box.outbox.send(b"b")
    assert box.wire.writes == 0 and len(world.clock.calls) == 1
    world.clock.advance(0)
    assert box.wire.written == b"ab"


def test_room_is_used_up_only_by_what_the_socket_has_not_taken():
    box = Box(Outgoing(BrokerFixture().broker.clock))
    for _ in range(3):
        box.outbox.send(b"x" * (ROOM // 2))
        box.outbox.flush()
    assert box.outbox.capacity == ROOM
    box.outbox.pause()
    box.outbox.send(b"x" * (ROOM // 2))
    box.outbox.flush()
    assert box.outbox.capacity == ROOM - ROOM // 2
    box.outbox.send(b"x" * ROOM)
    box.outbox.flush()
    assert box.outbox.capacity < 0 and box.said == []
    box.outbox.resume()
    assert (box.outbox.capacity, box.said) == (ROOM, ["room"])


def test_one_big_frame_that_fits_the_socket_is_no_reason_to_rest():
    box = Box(Outgoing(BrokerFixture().broker.clock))
    box.outbox.send(b"x" * (2 * ROOM))
    box.outbox.flush()
    assert (box.outbox.capacity, box.said) == (ROOM, ["room"])
