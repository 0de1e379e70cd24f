"""A run of stompring that samples the stack of its main thread.

    python -m benchmarks.sampled FILE run --config broker.xml …

The sampler reads the stack a thousand times per second of processor time. At the end FILE has tables in per cent: the
running functions (self), and the functions on the stack (with callees). Sampling costs a few per cent, while a profiler
that counts calls costs half the speed. The disk threads are not sampled. The benchmarks start their broker with the
sampler if the environment variable `STOMPRING_PROFILE` names a file.
"""

from __future__ import annotations

import collections
import os
import signal
import sys
from pathlib import Path
from types import CodeType, FrameType

INTERVAL = 0.001
ROWS = 45
IMPORT = "<frozen importlib"


class Samples:
    """Counts of samples by function: of the innermost frame, and of every function on the stack."""

    def __init__(self) -> None:
        self.taken = 0
        self.lines: collections.Counter[tuple[CodeType, int]] = collections.Counter()
        self.own: collections.Counter[CodeType] = collections.Counter()
        self.within: collections.Counter[CodeType] = collections.Counter()

    def take(self, number: int, frame: FrameType | None) -> None:
        """Record a sample, as the handler of SIGPROF."""
        innermost, seen = frame, set()
        while frame is not None:
            if frame.f_code.co_filename.startswith(IMPORT):
                return  # an import, at the start
            seen.add(frame.f_code)
            frame = frame.f_back
        if innermost is not None:
            self.taken += 1
            self.own[innermost.f_code] += 1
            self.lines[innermost.f_code, innermost.f_lineno] += 1
            self.within.update(seen)

    def report(self) -> str:
        """Return the tables, the most frequent functions first."""
        parts = [f"{self.taken} samples"]
        for title, counts in (("self", self.own), ("with callees", self.within)):
            parts.append(f"\n{'%':>6}  {title}")
            parts += [f"{100 * n / self.taken:6.1f}  {_named(code)}" for code, n in counts.most_common(ROWS)]
        parts.append(f"\n{'%':>6}  lines")
        parts += [
            f"{100 * n / self.taken:6.1f}  {_file(code)}:{line} {code.co_name}"
            for (code, line), n in self.lines.most_common(ROWS)
        ]
        return "\n".join(parts) + "\n"


def _file(code: CodeType) -> str:
    parts = Path(code.co_filename).parts
    return "/".join(parts[-2:])


def _named(code: CodeType) -> str:
    return f"{_file(code)}:{code.co_firstlineno} {code.co_qualname}"


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit("usage: python -m benchmarks.sampled FILE run --config broker.xml …")
    report, arguments = Path(sys.argv[1]), sys.argv[2:]
    from stompring.cli.main import main as stompring

    samples = Samples()
    signal.signal(signal.SIGPROF, samples.take)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    sys.argv = ["stompring", *arguments]
    try:
        stompring()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if samples.taken:
            path = report if not report.exists() else report.with_name(f"{report.name}.{os.getpid()}")
            path.write_text(samples.report())


if __name__ == "__main__":
    main()
