"""What every target is held to: a documented result or a documented error, in bounded time and memory."""

import time
import tracemalloc

#: Seconds of processor time that an input may take, whatever it holds: many times what the slowest takes, so that
#: a slow machine does not matter and a hang does.
LONGEST = 10.0

#: Bytes that an input may make the code hold at one time, beside a multiple of its own length.
MEMORY = 48 * 1024 * 1024
MEMORY_PER_BYTE = 1000


class Broken(AssertionError):
    """The code did something that no document says."""


def expect(holds, what):
    """Say what is broken where something does not hold."""
    if not holds:
        raise Broken(what)


def within_time(check, data, longest=LONGEST):
    """Check an input, and that it took no longer than it may."""
    begun = time.thread_time()
    check(data)
    taken = time.thread_time() - begun
    expect(taken < longest, f"{len(data)} bytes took {taken:.1f} s")


def within_memory(check, data):
    """Check an input, and that it took no more memory than it may. Several times as slow."""
    check(data)  # what is made once, as tables of parsers, does not count
    tracemalloc.start()
    try:
        check(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    allowed = MEMORY + MEMORY_PER_BYTE * len(data)
    expect(peak < allowed, f"{len(data)} bytes took {peak} bytes of memory, {allowed} are allowed")
