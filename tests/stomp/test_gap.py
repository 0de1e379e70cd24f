"""What may stand between frames."""

import pytest

from stompring.errors import ProtocolError
from stompring.stomp.parser import skip_line_ends


@pytest.mark.parametrize(
    "data, after",
    [
        (b"\n", 1),
        (b"\nSEND", 1),
        (b"\n\nSEND", 2),
        (b"\r\nSEND", 2),
        (b"\n\r\n\n\r\nSEND", 6),
        (b"\t", 0),
        (b"\n\0", 1),
        (b"\r", 0),
        (b"\n\n\r", 2),
        (b"\r\n\r", 2),
        (b"\nS\r", 1),
        (b"\r\nS\r\r", 2),
    ],
)
def test_first_byte_of_what_follows(data, after):
    assert skip_line_ends(data, 0) == after
    assert skip_line_ends(b"xyz" + data, 3) == after + 3


@pytest.mark.parametrize("length", range(4090, 4100))
@pytest.mark.parametrize("end", [b"", b"S", b"\n", b"\nS", b"\r\n", b"\r\nS", b"\r\nSEND\r"])
def test_long_runs(length, end):
    data = b"\n" * length + end
    assert skip_line_ends(data, 0) == length + len(end) - len(end.lstrip(b"\r\n"))
    assert skip_line_ends(b"\r\n" * length + end, 0) == 2 * length + len(end) - len(end.lstrip(b"\r\n"))


@pytest.mark.parametrize("length", [0, 1, 4094, 4095, 4096, 4097])
def test_a_cr_at_the_very_end_is_left(length):
    assert skip_line_ends(b"\n" * length + b"\r", 0) == length


@pytest.mark.parametrize("length", [0, 1, 4094, 4095, 4096, 4097])
@pytest.mark.parametrize("end", [b"\rS", b"\r\r", b"\r\r\n", b"\r\n\rS"])
def test_a_cr_needs_its_lf(length, end):
    with pytest.raises(ProtocolError, match="carriage return without line feed between frames"):
        skip_line_ends(b"\n" * length + end, 0)
