"""Room: limits, and the producers that wait for it."""

from __future__ import annotations

import pytest

from stompring.broker.memory import Room


def fill(room: Room, messages: int, size: int = 100) -> None:
    for _ in range(abs(messages)):
        room.bytes += size if messages > 0 else -size
        room.messages += 1 if messages > 0 else -1
        room.review()


@pytest.mark.parametrize(
    ("max_bytes", "max_messages", "messages", "full"),
    [
        (-1, -1, 1000, False),
        (0, -1, 0, True),
        (-1, 0, 0, True),
        (1000, -1, 9, False),
        (1000, -1, 10, True),
        (-1, 3, 2, False),
        (-1, 3, 3, True),
        (1000, 3, 3, True),
        (200, 3, 2, True),
    ],
)
def test_a_limit_is_reached_not_passed(max_bytes: int, max_messages: int, messages: int, full: bool) -> None:
    room = Room(max_bytes, max_messages)
    fill(room, messages)
    assert room.full is full


def test_those_who_wait_are_called_one_at_a_time_in_order() -> None:
    room = Room(max_messages=2)
    fill(room, 2)
    called: list[str] = []
    for name in "abc":
        room.waiting.append(lambda name=name: called.append(name))
    fill(room, -1)
    assert called == ["a"]
    fill(room, -1)
    assert called == ["a"], "b must wait until a has used the room"
    room.woken()
    assert called == ["a", "b"]
    fill(room, 2)
    room.woken()
    assert called == ["a", "b"], "full again"
    fill(room, -1)
    assert called == ["a", "b", "c"]
    room.woken()
    assert not room.waiting


def test_raising_the_limit_makes_room() -> None:
    room = Room(max_messages=1)
    fill(room, 1)
    called: list[int] = []
    room.waiting.append(lambda: called.append(1))
    room.limit(-1, 5)
    assert called == [1] and not room.full


def test_percent_is_of_the_nearer_limit() -> None:
    room = Room()
    fill(room, 5)
    assert room.percent == 0
    room.limit(1000, 20)
    assert room.percent == 50
    room.limit(10_000, 5)
    assert room.percent == 100
