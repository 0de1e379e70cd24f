"""What the log tells of the memory that messages may take."""

import pytest

from stompring.server.protocol import describe_limits, format_size
from stompring.settings.model import BrokerConfiguration

MB, GB = 1024**2, 1024**3


@pytest.mark.parametrize(
    "size, text",
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KB"),
        (1536, "1.5 KB"),
        (512 * MB, "512 MB"),
        (2 * GB + GB // 2, "2.5 GB"),
        (3 * 1024**5, "3072 TB"),
    ],
)
def test_sizes(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    "said, text",
    [
        ({"global_max_size": 2 * GB}, "2 GB, a quarter of 8 GB"),
        ({"global_max_size": 512 * MB}, "512 MB of 8 GB (global-max-size)"),
        ({}, "no limit (global-max-size -1)"),
        ({"global_max_messages": 5}, "no limit (global-max-size -1), 5 messages (global-max-messages)"),
    ],
)
def test_limits(said, text):
    configuration = BrokerConfiguration(persistence_enabled=False, **said)
    assert describe_limits(configuration, 8 * GB) == f"memory for messages: {text}"


def test_dispatch_where_there_is_a_store():
    text = describe_limits(BrokerConfiguration(dispatch_memory=64 * MB), 8 * GB)
    assert text.endswith("; 64 MB for messages read back from pages")
