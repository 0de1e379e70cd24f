"""Cost of the retention for the broker, without and with a concurrent ingest.

    python -m benchmarks.retention [--rounds 8] [--seconds 4] [--case durable-held]

Brokers that differ only in journal-retention-directory run in turn, round by round. For one of them an ingest with
``--follow`` writes the retained files to a lake, on one core. It is paused while the other brokers run. The ratio of a
broker to the one without retention is the median over the rounds of the ratio within a round. The output also has the
ratio of the processor time alone. In ``durable-held`` the store writes the messages in any case. In
``durable-receipts`` consumers take them at once, and the store writes them only for the retention.
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

#: Targets: fraction of the rate without retention. The lower ones are for messages that the store writes only for it.
KEPT = {KEEPS: 0.95, INGESTED: 0.85}
CONSUMED = {KEEPS: 0.8, INGESTED: 0.7}

CORE = 1  # core of the ingest

ROOT = Path(__file__).resolve().parents[1]


class Ingested(Stompring):
    """stompring with an ingest of its retained files."""

    _ingest: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the broker and the ingest. Returns when the ingest has completed its first batch."""
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
        super().pause()
        self._tell(signal.SIGSTOP)

    def resume(self) -> None:
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
        """Send a signal to all processes of the ingest's session: Python, Java and the workers."""
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
    """Run a case without retention, with it, and with an ingest.

    Targets: at least 0.95 of the rate with retention, 0.85 with the ingest on one core of two; 0.8 and 0.7 if consumers
    take the messages at once.
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
