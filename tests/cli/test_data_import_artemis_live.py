"""The export that is test data, and one that Artemis makes now: the same messages have the same form."""

import pytest

from stompring.store.artemis_export import ArtemisExportReader
from stompring.store.export import DeclaredQueue, PortableMessage, header_pairs

from ..artemis import installed, needs_artemis, needs_java
from .artemis_messages import EXPORT, PRODUCED, make_export
from .conftest import invoke

# Artemis and its two clients are four processes of Java.
pytestmark = [needs_artemis, needs_java, pytest.mark.timeout(600), pytest.mark.long]

#: Queues of what `make_export` leaves out.
OTHERS = {"soon", "ExpiryQueue", *(queue for queue, *_ in PRODUCED[1:])}

#: Properties that are different each time.
VARYING = {b"ThreadSent"}


def contents(file):
    queues, messages = set(), []
    with ArtemisExportReader(file) as reader:
        for entry in reader.entries():
            if isinstance(entry, DeclaredQueue) and entry.name not in OTHERS:
                queues.add(entry)
            elif isinstance(entry, PortableMessage) and not OTHERS.intersection(
                each.queue for each in entry.places
            ):
                headers = sorted(pair for pair in header_pairs(entry.traits.block) if pair[0] not in VARYING)
                places = sorted((each.queue, each.due == 0) for each in entry.places)
                traits = entry.traits
                facts = (
                    entry.expires,
                    traits.routing_type,
                    traits.destination,
                    traits.group,
                    traits.group_sequence,
                )
                messages.append((entry.address, places, headers, entry.body, *facts))
    return queues, messages


def test_export_of_the_installed_artemis_is_as_the_committed_one(tmp_path):
    file = tmp_path / "export.xml"
    make_export(installed(), tmp_path, file, all_of_it=False)
    assert contents(file) == contents(EXPORT)
    invoke(f"import --from artemis-xml {file} --data {tmp_path}/data")
