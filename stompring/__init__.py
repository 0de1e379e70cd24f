"""stompring: a STOMP 1.0/1.1/1.2 message broker on Twisted."""

__version__ = "0.1.0"

#: The values of `build`.
BUILDS = ("compiled", "pure Python")

#: Cost of the pure Python build, and how to get the compiled one. benchmarks/results/bench.json has the rates.
ADVICE = (
    "the pure Python build has 0.25 of the rate of the compiled one. Wheels for CPython 3.11 to 3.14 on Linux have the "
    "compiled one; from source: STOMPRING_COMPILE=1 pip install --force-reinstall --no-deps --no-binary stompring "
    "stompring"
)


def build() -> str:
    """Return the build that runs: ``compiled`` (some modules are extension modules: setup.py) or ``pure Python``."""
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import find_spec

    spec = find_spec("stompring.errors")
    return BUILDS[0 if spec is not None and isinstance(spec.loader, ExtensionFileLoader) else 1]


def advice() -> str | None:
    """Return `ADVICE` for the pure Python build, None for the compiled one."""
    return ADVICE if build() == BUILDS[1] else None
