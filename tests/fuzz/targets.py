"""What is fuzzed, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Target:
    """One module of this directory: its ``check``, and what a fuzzer needs to know.

    ``longest`` is bytes of an input, ``modules`` are those whose coverage leads the search, ``tokens`` what its
    language consists of.
    """

    name: str
    check: Callable[[bytes], None]
    longest: int
    modules: tuple[str, ...]
    tokens: tuple[bytes, ...]

    @classmethod
    def load(cls, name):
        """The target in the module of that name."""
        module = import_module(f".{name}", __package__)
        return cls(name, module.check, module.LONGEST, tuple(module.MODULES), tuple(module.TOKENS))

    @property
    def corpus(self):
        """Inputs to begin with."""
        return HERE / "corpus" / self.name

    @property
    def crashes(self):
        """Inputs that were answered wrongly once."""
        return HERE / "crashes" / self.name


NAMES = ("parser", "selector", "broker_xml", "record", "json_body", "texts", "websocket")
