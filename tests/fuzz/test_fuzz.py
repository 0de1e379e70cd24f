"""Every target on its corpus, on what once broke it, and for a moment on what a fuzzer makes of them.

``make fuzz`` runs each target for ten minutes; STOMPRING_FUZZ_SECONDS makes the short run here longer. Where atheris is
not installed, hypothesis changes the corpora instead, without looking at what that reaches.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..broker_process import ROOT
from ..property.profile import examples
from .oracle import Broken, within_memory, within_time
from .targets import NAMES, Target

#: Seconds of a short run at most, and inputs: those take some 0.3 s on a machine that is idle.
SECONDS = int(os.environ.get("STOMPRING_FUZZ_SECONDS", "10"))
RUNS = 1_000_000_000 if "STOMPRING_FUZZ_SECONDS" in os.environ else 150

ATHERIS = find_spec("atheris") is not None
needs_atheris = pytest.mark.skipif(
    not ATHERIS, reason="atheris is not installed (pip install 'stompring[fuzz]')"
)

TARGETS = {name: Target.load(name) for name in NAMES}


def inputs(target):
    """What is kept beside this module, with what once broke it first."""
    return [path for directory in (target.crashes, target.corpus) for path in sorted(directory.glob("*"))]


@pytest.mark.parametrize(
    "path", [p for t in TARGETS.values() for p in inputs(t)], ids=lambda p: f"{p.parent.name}-{p.name}"
)
def test_what_is_kept(path):
    """Corpora, and each input that was answered wrongly once, named by what was wrong."""
    within_time(TARGETS[path.parent.name].check, path.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_bounded(name):
    """On what once broke it, and on the longest inputs that are kept."""
    target = TARGETS[name]
    longest = sorted(target.corpus.glob("*"), key=lambda path: path.stat().st_size)[-2:]
    for path in [*sorted(target.crashes.glob("*")), *longest]:
        within_memory(target.check, path.read_bytes())


@needs_atheris
@pytest.mark.parametrize("name", NAMES)
def test_a_short_run(name, tmp_path):
    """Nothing breaks; and the fuzzer reaches new code, so that it is known to work. A slow machine has more time
    for that."""
    corpus, finds = tmp_path / "corpus", tmp_path / "finds"
    for times in (1, 10):
        limits = [f"--seconds={times * SECONDS}", f"--runs={times * RUNS}", "--seed=1"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", name, *limits, f"--corpus={corpus}", f"--finds={finds}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100 + times * SECONDS,
        )
        told = done.stderr[-6000:]
        assert done.returncode == 0, f"{list(finds.glob('*'))}\n{told}"
        assert "stat::number_of_executed_units" in told
        if list(corpus.glob("*")):
            return
    raise AssertionError("nothing new was reached: is the code instrumented?")


@pytest.mark.parametrize("name", NAMES)
def test_changed_at_random(name):
    """Pieces of the corpus, tokens and any bytes, one after the other; a few only where atheris does it better."""
    target = TARGETS[name]
    kept = [path.read_bytes() for path in inputs(target)]
    slices = st.builds(
        lambda data, a, b: data[min(a, b) : max(a, b)], st.sampled_from(kept), *[st.integers(0, 4096)] * 2
    )
    pieces = st.sampled_from(kept) | slices | st.sampled_from(target.tokens) | st.binary(max_size=8)

    @examples(20 if ATHERIS else 150)
    @given(
        st.builds(
            lambda first, parts: first + b"".join(parts), st.binary(max_size=1), st.lists(pieces, max_size=8)
        )
    )
    def run(data):
        within_time(target.check, data[: target.longest])

    run()


# ---- the oracle itself


def test_what_takes_too_long_is_broken():
    with pytest.raises(Broken, match="took"):
        within_time(lambda data: [None for _ in range(1_000_000)] and None, b"", 0.001)


def test_what_takes_too_much_is_broken():
    def check(data):
        bytearray(60_000_000)

    with pytest.raises(Broken, match="memory"):
        within_memory(check, b"")


@needs_atheris
def test_a_fuzzer_finds_what_is_there(tmp_path):
    """A target with a fault is found, and the input that shows it is kept: else a quiet run would prove nothing."""
    program = tmp_path / "faulty.py"
    program.write_text(
        "import sys, atheris\n"
        "@atheris.instrument_func\n"
        "def check(data):\n"
        "    if data[:2] == b'\\xf1\\x02':\n"
        "        raise IndexError\n"
        f"atheris.Setup([sys.argv[0], '-max_total_time=60', '-artifact_prefix={tmp_path}/'], check)\n"
        "atheris.Fuzz()\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, timeout=100)
    assert done.returncode == 77
    assert [path.read_bytes()[:2] for path in tmp_path.glob("crash-*")] == [b"\xf1\x02"]
