"""``python -m tests.fuzz TARGET --seconds N``: look for inputs that break a target's promise, led by coverage.

What is new is added to ``--corpus``, a directory of one's own; the inputs beside this module are read and left as
they are. An input that breaks something is written to ``--finds``, and ends the run with exit code 77, or 70 and 71
where it takes too long or too much memory. Needs atheris: ``pip install 'stompring[fuzz]'``.
"""

import argparse
import gc
import sys
import tempfile
from pathlib import Path
from types import FunctionType

from .targets import NAMES, Target

#: Seconds of one input, and MiB of the whole process, that end a run.
TIMEOUT, MEMORY = 20, 2048


def main():
    """See the module. Does not return: libFuzzer ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--runs", type=int, default=-1, help="inputs to try at most; -1 for no limit")
    parser.add_argument("--seed", type=int, default=0, help="of the choices; 0 for new ones")
    parser.add_argument("--corpus", type=Path, help="where new inputs are kept; a temporary directory else")
    parser.add_argument(
        "--finds", type=Path, default=Path("."), help="where an input goes that breaks something"
    )
    options = parser.parse_args()

    import atheris

    target = Target.load(options.target)
    for function in functions(target.modules):
        atheris.instrument_func(function)
    with tempfile.TemporaryDirectory(prefix="stompring-fuzz-") as scratch:
        own = options.corpus or Path(scratch) / "corpus"
        for directory in (own, options.finds):
            directory.mkdir(parents=True, exist_ok=True)
        tokens = Path(scratch) / "tokens"
        tokens.write_text("".join(f'"{escaped(token)}"\n' for token in target.tokens), encoding="ascii")
        arguments = [
            sys.argv[0],
            f"-max_total_time={options.seconds}",
            f"-runs={options.runs}",
            f"-seed={options.seed}",
            f"-max_len={target.longest}",
            f"-timeout={TIMEOUT}",
            f"-rss_limit_mb={MEMORY}",
            f"-dict={tokens}",
            f"-artifact_prefix={options.finds}/{target.name}-",
            "-print_final_stats=1",
            "-reload=0",
            *(str(own), *(str(each) for each in (target.corpus, target.crashes) if each.is_dir())),
        ]
        atheris.Setup(arguments, target.check)
        atheris.Fuzz()


def functions(modules):
    """All functions of these modules and of those below them, however they are kept: in classes, in tables.

    While it imports, atheris can only instrument a whole package, and all of stompring takes it half a minute.
    """
    below = tuple(f"{module}." for module in modules)
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and (each.__module__ in modules or (each.__module__ or "").startswith(below))
    ]


def escaped(token):
    """A token as libFuzzer's dictionaries have it."""
    return "".join(f"\\x{byte:02X}" for byte in token)


if __name__ == "__main__":
    main()
