"""The loop of the campaigns `make crash`, `make failover` and `make kills`: faults, an account of promises, a seed.

Environment: FAULTS, how many in all; SEED, of the first campaign (from the clock). What else there is, each says.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path


class BrokenPromise(AssertionError):
    """The broker did not keep what it had promised."""


def tell(line):
    """Say it at once: a campaign takes hours."""
    print(line, flush=True)


def campaigns(name, faults, each, one, *options):
    """Campaigns until there were enough faults; the exit code. The first broken promise ends them.

    ``one(directory, seed, count)`` causes ``count`` faults, at most ``each``, in an empty directory, and returns its
    report. ``faults`` is the number of all faults where FAULTS is not set. ``options`` are environment variables that
    the command for another try repeats.
    """
    left = total = int(os.environ.get("FAULTS", faults))
    seed = int(os.environ.get("SEED") or time.time())
    began = time.monotonic()
    while left > 0:
        count = min(left, each)
        tell(f"seed {seed}, {count} faults")
        directory = Path(tempfile.mkdtemp(prefix=f"stompring-{name}-{seed}-"))
        try:
            report = one(directory, seed, count)
        except AssertionError as fault:
            given = "".join(f"{option}='{os.environ[option]}' " for option in options if option in os.environ)
            tell(
                f"\n{fault}\n\nfiles are in {directory}\nagain: {given}SEED={seed} FAULTS={count} make {name}"
            )
            return 1
        shutil.rmtree(directory)
        left -= count
        tell(f"{total - left}/{total} faults after {time.monotonic() - began:.0f} s; seed {seed}: {report}")
        seed += 1
    return 0
