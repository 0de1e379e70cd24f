"""A run of stompring that records the duration of each garbage collection.

    python -m benchmarks.collected FILE run --config broker.xml …

FILE gets a line for each collection: its generation, seconds of the wall clock and of the main thread's processor time,
and the number of unreachable objects.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import TextIO


class Collections:
    """The recorder of collections, including the time of the broker's own callbacks."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._begun = self._begun_cpu = 0.0

    def first(self, phase: str, info: dict[str, int]) -> None:
        """Begin to measure. This callback is the first one."""
        if phase == "start":
            self._begun, self._begun_cpu = time.perf_counter(), time.thread_time()

    def last(self, phase: str, info: dict[str, int]) -> None:
        """Record the collection. This callback moves behind those that the broker has added."""
        if phase == "stop":
            wall, cpu = time.perf_counter() - self._begun, time.thread_time() - self._begun_cpu
            self._file.write(f"{info['generation']} {wall:.6f} {cpu:.6f} {info['collected']}\n")
            if gc.callbacks[-1] != self.last:
                gc.callbacks.remove(self.last)
                gc.callbacks.append(self.last)


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit("usage: python -m benchmarks.collected FILE run --config broker.xml …")
    path, arguments = Path(sys.argv[1]), sys.argv[2:]
    from stompring.cli.main import main as stompring

    with path.open("w", buffering=1) as file:
        collections = Collections(file)
        gc.callbacks[:] = [collections.first, *gc.callbacks, collections.last]
        sys.argv = ["stompring", *arguments]
        stompring()


if __name__ == "__main__":
    main()
