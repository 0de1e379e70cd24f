"""What it costs the broker to keep everything, and to have it ingested meanwhile.

    python -m benchmarks.retention [--rounds 8] [--seconds 4] [--case durable-held]

Brokers that differ in journal-retention-directory alone run round by round in turn; beside one of them an ingest with
``--follow`` takes what it keeps to a lake, on one core, and stands still while the others run. The ratio is the median
over the rounds of what a broker and the one without retention did in the same round; beside it stands what
that would be by the broker's processor time alone. In ``durable-held`` messages are
written in any case; in ``durable-receipts`` they are consumed as they come, and then written for the retention alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

import click

from benchmarks import load
from benchmarks.brokers import Broker, BrokerDied, Stompring
from benchmarks.cases import CASES
from benchmarks.results import Results, markdown
from benchmarks.targets import verdict
from benchmarks.whole_broker import play

WITHOUT, KEEPS, INGESTED = "without", "retention", "retention, ingested"

#: Of the rate without. What is consumed as it comes would not be written at all without retention.
KEPT = {KEEPS: 0.95, INGESTED: 0.85}
CONSUMED = {KEEPS: 0.8, INGESTED: 0.7}

CORE = 1  # that the ingest has

ROOT = Path(__file__).resolve().parents[1]


class Ingested(Stompring):
    """stompring, and beside it an ingest of what it keeps."""

    _ingest: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Both; the ingest has taken its first batch when this returns."""
        super().start()
        log = self.directory / "ingest.log"
        words = [
            "--data",
            str(self.data),
            "--lake",
            str(self.directory / "lake"),
            "--follow",
            "--interval",
            "1",
        ]
        with open(log, "wb") as output:
            self._ingest = subprocess.Popen(
                ["taskset", "-c", str(CORE), sys.executable, "-m", "stompring", "lake", "ingest", *words]
                + ["--master", "local[1]"],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        while b"batch" not in log.read_bytes():
            if self._ingest.poll() is not None:
                raise BrokerDied(f"the ingest has ended: {log.read_text()}")
            with suppress(subprocess.TimeoutExpired):
                self._ingest.wait(0.2)

    def pause(self) -> None:
        """Both."""
        super().pause()
        self._tell(signal.SIGSTOP)

    def resume(self) -> None:
        """Both."""
        super().resume()
        self._tell(signal.SIGCONT)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell(signal.SIGCONT)
        self._tell(signal.SIGKILL)
        if self._ingest is not None:
            self._ingest.wait()
        super().__exit__(kind, error, trace)

    def _tell(self, number: signal.Signals) -> None:
        """To all processes of the ingest's session: Python's, Java's and the workers'."""
        if self._ingest is None:
            return
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with suppress(OSError, IndexError):
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                if session == self._ingest.pid:
                    os.kill(int(entry.name), number)


@click.command()
@click.option("--rounds", default=8, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.1), help="Per run.")
@click.option("--case", default="durable-held", show_default=True, type=click.Choice(list(CASES)))
@click.option("--ingest/--no-ingest", default=True, show_default=True, help="With the third broker, too.")
def main(rounds: int, seconds: float, case: str, ingest: bool) -> None:
    """Runs a case without retention, with it, and with an ingest beside it.

    Targets: at least 0.95 of the rate with retention, 0.85 with the ingest on one core of two; 0.8 and 0.7 where
    messages are consumed as they come.
    """
    results = Results()
    settings = {"journal-retention-directory": "data/retention"}
    brokers: dict[str, Broker] = {
        WITHOUT: Stompring(),
        KEEPS: Stompring(settings=settings),
    }
    if ingest:
        brokers[INGESTED] = Ingested(settings=settings)
    targets = KEPT if case == "durable-held" else CONSUMED
    try:
        with ExitStack() as stack:
            for label, broker in brokers.items():
                stack.enter_context(broker)
                results.versions[label] = broker.version()
                broker.pause()
            play(results, brokers, [CASES[case]], rounds, seconds)
    except (BrokerDied, load.LoadFailed) as failure:
        raise click.ClickException(str(failure)) from failure
    rows = []
    for label in list(brokers)[1:]:
        kept = targets[label]
        found = results.paired(case, WITHOUT, label)
        rate = "not measured" if found is None else f"{found[0]:.3f}"
        judged = "" if found is None else verdict(found[0], kept).partition(":")[0]
        processor = "not measured" if found is None else f"{1 / found[1]:.3f}"
        rows.append([case, label, rate, f"{kept}", judged, processor])
    click.echo(
        "\n" + markdown(["case", "broker", "rate", "at least", "target", "by its processor time"], rows)
    )
    sys.exit(1 if results.failures() else 0)


if __name__ == "__main__":
    main()
