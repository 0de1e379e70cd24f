"""Cost of address policies: one with a hook for every message that changes nothing, and ten without such a hook.

python -m benchmarks.policies [--rounds 10] [--seconds 3] [--only CASE …]

Brokers that differ only in their policies run in turn, round by round. The ratio of a broker with policies to the
broker without is the median over the rounds of the ratio within a round, so that a busy machine slows both.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import click
from lxml import etree

from benchmarks import load
from benchmarks.brokers import Broker, BrokerDied, Stompring
from benchmarks.brokers.stompring import CORE
from benchmarks.cases import CASES, Case
from benchmarks.results import Results, markdown
from benchmarks.targets import verdict
from benchmarks.whole_broker import play

PLAIN, HOT, COLD = "none", "one hot", "ten cold"
CASE_NAMES = ("auto", "client-individual", "fan-out", "receipts")
# targets: fraction of the rate without policies; 0.98 is the resolution of the measurement
KEPT = {HOT: 0.95, COLD: 0.98}

NOTHING_HOT = '''
from stompring.policy import AddressPolicy


class Nothing(AddressPolicy):
    """Is asked about every message, and accepts it."""

    def admit(self, offer):
        return None
'''

NOTHING_COLD = '''
from stompring.policy import AddressPolicy


class Nothing(AddressPolicy):
    """Has every hook that is not called for ordinary messages."""

    def created(self):
        self.heard = 0

    def evicted(self, message):
        self.heard += 1

    def expired(self, message):
        self.heard += 1

    def killed(self, message):
        self.heard += 1

    def dead_lettered(self, message):
        self.heard += 1

    def subscribed(self, subscriber):
        self.heard += 1
'''

POLICIES: dict[str, dict[str, str]] = {
    PLAIN: {},
    HOT: {"nothing": NOTHING_HOT},
    COLD: {f"nothing-{number}": NOTHING_COLD for number in range(10)},
}


class WithPolicies(Stompring):
    """stompring with policies for all addresses."""

    name: ClassVar[str] = "stompring"

    def __init__(self, policies: dict[str, str]) -> None:
        super().__init__()
        self._policies = policies

    def _write_config(self, path: Path) -> None:
        super()._write_config(path)
        folder = path.parent / "plugins"
        folder.mkdir()
        tree = etree.parse(str(path))
        core = tree.find(f"{CORE}core")
        everywhere = tree.find(f".//{CORE}address-setting[@match='#']")
        assert core is not None and everywhere is not None
        named = etree.SubElement(core, CORE + "broker-plugins")
        for name, code in self._policies.items():
            (folder / f"{name.replace('-', '_')}.py").write_text(code, encoding="utf-8")
            etree.SubElement(named, CORE + "broker-plugin", name=name)
            etree.SubElement(everywhere, CORE + "address-policy", name=name)
        tree.write(str(path), xml_declaration=True, encoding="UTF-8")


def measure(cases: list[Case], rounds: int, seconds: float) -> Results:
    """Measure all cases with all sets of policies."""
    results = Results()
    with ExitStack() as stack:
        started: dict[str, Broker] = {}
        for label, policies in POLICIES.items():
            broker = stack.enter_context(WithPolicies(policies))
            results.versions[label] = broker.version()
            broker.pause()
            started[label] = broker
        play(results, started, cases, rounds, seconds)
    return results


def table(results: Results, cases: list[Case]) -> str:
    """Return a row for each case and each set of policies."""
    rows = []
    for case in cases:
        for label in (HOT, COLD):
            found = results.paired(case.name, PLAIN, label)
            if found is None:
                rows.append([case.name, label, "", "", "", "not measured"])
                continue
            rate, cost = found
            plain = results.median(case.name, PLAIN, "msgs_per_s") or 0.0
            judged = verdict(rate, KEPT[label]).partition(":")[0]
            rows.append([case.name, label, f"{plain:,.0f}", f"{rate:.3f}", f"{cost:.3f}", judged])
    return markdown(["case", "policies", "without /s", "rate", "processor time", "target"], rows)


@click.command()
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1), help="Per run.")
@click.option("--only", multiple=True, type=click.Choice(CASE_NAMES), help="Only this case; repeatable.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write runs here.")
def main(rounds: int, seconds: float, only: tuple[str, ...], json_file: Path | None) -> None:
    """Run cases without policies, with one on the hot hook, and with ten that have no hot hook.

    Targets: at least 0.95 of the rate with the one, 0.98 (the resolution of the measurement) with the ten.
    """
    cases = [CASES[name] for name in CASE_NAMES if not only or name in only]
    try:
        results = measure(cases, rounds, seconds)
    except (BrokerDied, load.LoadFailed) as failure:
        raise click.ClickException(str(failure)) from failure
    click.echo("\n" + table(results, cases))
    if json_file is not None:
        results.save(json_file)
        click.echo(f"written: {json_file}")
    sys.exit(1 if results.failures() else 0)


if __name__ == "__main__":
    main()
