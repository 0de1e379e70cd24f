"""``stompring data export``: everything that a broker would find when it starts is in the file."""

import base64
import gzip
import json
import re
from typing import Any

import pytest

from stompring.store.segment import HEADER, find_footer

from ..docs.pages import text_of
from ..store.populated_directory import Expected
from .conftest import invoke

Line = dict[str, Any]


def exported(file):
    """Addresses, queues and messages of a file."""
    opened = gzip.open(file, "rt") if file.suffix == ".gz" else file.open()
    with opened as lines:
        objects = [json.loads(line) for line in lines]
    assert objects[0]["export"]["format"] == 1
    kinds = {
        kind: [line[kind] for line in objects if kind in line] for kind in ("address", "queue", "message")
    }
    assert objects[-1]["end"] == {kind: len(found) for kind, found in kinds.items()}
    assert len(objects) == 2 + sum(map(len, kinds.values()))
    return kinds["address"], kinds["queue"], kinds["message"]


def raw(value):
    """A text, or bytes that are none."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


def expected_of(messages, queue):
    """The messages of one queue, as the filler has noted them."""
    found = []
    for message in messages:
        for place in message["queues"]:
            if place["queue"] == queue:
                recurrence = place["recurrence"]
                found.append(
                    Expected(
                        queue,
                        raw(message["body"]),
                        {name: value for name, value in message["headers"]},
                        message["priority"],
                        place["dueTime"] or 0,
                        place["deliveryCount"],
                        0 if recurrence is None else recurrence["repeat"],
                    )
                )
    return found


def check(file, stopped):
    addresses, queues, messages = exported(file)
    assert {each["name"] for each in addresses} == stopped.addresses.keys()
    assert {each["name"] for each in queues} == stopped.queues.keys()
    for queue in queues:
        broker = stopped.queues[queue["name"]]
        attributes = queue.keys() - {"noLocal", "asConfigured"}
        assert {field: queue[field] for field in attributes} == {field: broker[field] for field in attributes}
        assert expected_of(messages, queue["name"]) == stopped.filled.of(queue["name"])
    numbers = [message["number"] for message in messages]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("name", ["all.json", "all.json.gz"])
def test_everything_is_in_the_file(stopped, tmp_path, name):
    file = tmp_path / name
    invoke(f"export {file} --data {stopped.filled.data}")
    check(file, stopped)
    assert (file.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    assert list(tmp_path.iterdir()) == [file]


def test_result_as_json(stopped, tmp_path):
    file = tmp_path / "all.json"
    result = invoke(f"export {file} --json --data {stopped.filled.data}")
    addresses, queues, messages = map(len, exported(file))
    assert json.loads(result.stdout) == {
        "file": str(file),
        "messages": messages,
        "queues": queues,
        "addresses": addresses,
        "running": False,
        "findings": [],
    }


def test_of_a_running_broker(stopped):
    file = stopped.filled.data.parent / "live.gz"
    result = stopped.live["export", str(file)]
    assert result.exit_code == 0 and "of a running broker" in result.stdout, result.output
    check(file, stopped)


def test_every_attribute_that_a_queue_has(stopped, tmp_path):
    """None is forgotten: what the management API shows of a queue, but for its counters and rates."""
    file = tmp_path / "all.json"
    invoke(f"export {file} --data {stopped.filled.data}")
    _, queues, _ = exported(file)
    metrics = text_of("docs/metrics.md")
    counters = set(re.findall(r"`(\w+)` \| `stompring_queue_", metrics))
    counters = counters - {"ringSize"} | {"pendingCount", "oldestAge", "rebalancing"}
    shown = {name for name in stopped.queues["ring"] if not name.endswith("Rate")} - counters
    assert shown <= queues[0].keys()


def test_a_file_that_is_there_is_kept(stopped, tmp_path):
    file = tmp_path / "all.json"
    file.write_text("mine")
    assert "--replace" in invoke(f"export {file} --data {stopped.filled.data}", code=1).stderr
    assert file.read_text() == "mine"
    invoke(f"export {file} --replace --data {stopped.filled.data}")
    exported(file)


def test_a_directory_that_cannot_be_written(stopped, tmp_path):
    file = tmp_path / "absent" / "all.json"
    result = invoke(f"export {file} --data {stopped.filled.data}", code=1)
    assert str(file) in result.stderr and "No such file" in result.stderr


def test_damage_is_told_and_the_rest_is_there(filled, tmp_path):
    """One message in the middle of a complete page cannot be read: those behind it keep their places."""
    page = min((filled.data / "paging").rglob("*.page"))
    data = bytearray(page.read_bytes())
    footer = find_footer(bytes(data))
    assert footer.starts[0] > HEADER.size
    places = range(len(footer.starts))
    whole = exported_messages(filled, tmp_path / "whole.json")
    lost = next(
        place for place in places if damaged(filled, page, bytes(data), footer.starts[place], tmp_path, whole)
    )
    assert lost in places


def damaged(filled, page, data, at, tmp_path, whole):
    """Whether damage to this record loses exactly one message; one that nobody has any more loses none."""
    page.write_bytes(data[: at + 80] + bytes([data[at + 80] ^ 1]) + data[at + 81 :])
    file = tmp_path / f"{at}.json"
    assert f"{page}:{at}: " in invoke(f"export {file} --data {filled.data}", code=1).stderr
    _, _, left = exported(file)
    assert all(message in whole for message in left)
    assert len(whole) - len(left) in (0, 1)
    return len(left) < len(whole)


def exported_messages(filled, file):
    invoke(f"export {file} --data {filled.data}")
    return exported(file)[2]
