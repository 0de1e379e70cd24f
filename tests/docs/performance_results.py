"""The generated parts of docs/dev/performance.md."""

from benchmarks.document import block

__all__ = ["block"]
