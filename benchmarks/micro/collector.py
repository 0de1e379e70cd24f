"""Pauses of the cyclic garbage collector while a queue grows.

    python -m benchmarks.micro.collector [--messages 800000] [THRESHOLDS …]

THRESHOLDS are three numbers for ``gc.set_threshold``, separated by commas. Pauses are measured in processor time, which
hardly depends on the load of the machine. `benchmarks.gc_pauses` measures the latency that clients observe.
"""

from __future__ import annotations

import gc
import time

import click

from benchmarks.micro import queue

NEVER = 1_000_000_000
DEFAULT = ("700,10,10", f"50000,20,{NEVER}", f"10000,{NEVER},{NEVER}", f"2000,{NEVER},{NEVER}")


class Pauses:
    """The collections during a ``with`` block: seconds of processor time, by generation."""

    def __init__(self) -> None:
        self.seconds: dict[int, list[float]] = {0: [], 1: [], 2: []}
        self._begun = 0.0

    def __enter__(self) -> Pauses:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.process_time()
        else:
            self.seconds[info["generation"]].append(time.process_time() - self._begun)


def grow(thresholds: tuple[int, int, int], messages: int) -> tuple[Pauses, float]:
    """Fill a queue. Returns the pauses meanwhile, and the total processor seconds."""
    bench = queue.Bench()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds)
    begun = time.process_time()
    with Pauses() as pauses:
        for _ in range(messages // queue.MESSAGES):
            bench.send()
    spent = time.process_time() - begun
    held = bench.queue.message_count
    if held != messages // queue.MESSAGES * queue.MESSAGES:
        raise AssertionError(f"{held} messages are held, not {messages}")
    gc.unfreeze()
    return pauses, spent


@click.command()
@click.option("--messages", default=800_000, show_default=True, type=click.IntRange(1))
@click.argument("thresholds", nargs=-1)
def main(messages: int, thresholds: tuple[str, ...]) -> None:
    """Print number, sum and maximum of the pauses for each setting."""
    print(f"{'thresholds':<30}{'generation':>11}{'pauses':>8}{'sum ms':>9}{'max ms':>9}{'us/message':>12}")
    for text in thresholds or DEFAULT:
        numbers = text.split(",")
        if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
            raise click.BadParameter(f"{text!r} is not three numbers with commas", param_hint="THRESHOLDS")
        first, second, third = map(int, numbers)
        pauses, spent = grow((first, second, third), messages)
        for generation, seconds in pauses.seconds.items():
            if seconds:
                print(
                    f"{text:<30}{generation:>11}{len(seconds):>8}{1e3 * sum(seconds):>9.0f}"
                    f"{1e3 * max(seconds):>9.1f}{1e6 * spent / messages:>12.2f}"
                )


if __name__ == "__main__":
    main()
