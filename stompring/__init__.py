"""stompring: a STOMP 1.0/1.1/1.2 message broker on Twisted."""

__version__ = "0.1.0"

#: The values of `build`.
BUILDS = ("compiled", "pure Python")


def build() -> str:
    """Return the build that runs: ``compiled`` (some modules are extension modules: setup.py) or ``pure Python``."""
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import find_spec

    spec = find_spec("stompring.errors")
    return BUILDS[0 if spec is not None and isinstance(spec.loader, ExtensionFileLoader) else 1]
