"""What a campaign found out, as text and JSON."""

import json
import math
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """One fault. ``seconds`` until a client had a receipt again, from the fault on or from when that was possible."""

    number: int
    kind: str
    seconds: float
    takeover: bool
    told: list[str]


@dataclass
class Report:
    """All of them."""

    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    elapsed: float = 0.0
    writers: int = 0
    entries: int = 0

    def add(self, other):
        """What another campaign has found out."""
        self.outcomes += other.outcomes
        for what, number in other.counts.items():
            self.counts[what] = self.counts.get(what, 0) + number
        self.elapsed += other.elapsed
        self.writers += other.writers
        self.entries += other.entries

    def of_kind(self, kind):
        """Counts and times to ready of one kind of fault, of all where it is empty."""
        some = [outcome for outcome in self.outcomes if kind in ("", outcome.kind)]
        seconds = sorted(outcome.seconds for outcome in some)
        shares = (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
        times = {name: round(percentile(seconds, share), 3) for name, share in shares}
        return {"count": len(some), "takeovers": sum(outcome.takeover for outcome in some), **times}

    def text(self):
        """A table of the time to ready, by kind of fault."""
        kinds = sorted({outcome.kind for outcome in self.outcomes})
        width = max([len(kind) for kind in kinds] + [20])
        lines = [f"{'fault':{width}}  count  takeovers   p50 s   p95 s   max s"]
        for kind in [*kinds, ""]:
            row = self.of_kind(kind)
            lines.append(
                f"{kind or 'all':{width}}  {row['count']:5}  {row['takeovers']:9}  {row['p50']:6.2f}"
                f"  {row['p95']:6.2f}  {row['max']:6.2f}"
            )
        counted = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
        lines += [f"seed {self.seed}, {self.elapsed:.0f} s, {self.entries} entries of {self.writers} writers"]
        return "\n".join([*lines, counted])

    def write(self, path):
        """As JSON."""
        document = {
            "seed": self.seed,
            "seconds": round(self.elapsed, 1),
            "kinds": {kind: self.of_kind(kind) for kind in sorted({each.kind for each in self.outcomes})},
            "faults": [vars(outcome) for outcome in self.outcomes],
            "counts": self.counts,
            "writers": self.writers,
            "entries": self.entries,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")


def percentile(ordered, share):
    """The value that this share of an ordered sequence does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
