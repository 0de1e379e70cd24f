"""Duration of a selector for a message, without a reactor: ``python -m benchmarks.micro.selector``.

The output has the best of many rounds, in nanoseconds of processor time: of a test, and of a test without the message's
calls of ``get_property``, which read a dictionary. It also has the time to compile a selector in microseconds, with the
grammar already loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stompring.selector import Selector, compile_selector

TESTS = 5_000
ROUNDS = 60  # short rounds, so that other programs do not disturb the best one

HEADERS = {"color": "red", "age": "21", "price": "17.25", "region": "eu-west-1", "flag": "true", "empty": ""}
BODY = b"<order><item sku='a-1' count='2'/><item sku='b-2' count='7'/><customer>x</customer></order>"

CASES = [
    "color = 'red'",
    "color <> 'red'",
    "color IN ('red', 'green', 'blue')",
    "region LIKE 'eu-%'",
    "region LIKE 'eu-%-_'",
    "missing IS NULL",
    "flag = TRUE",
    "age > 18",
    "price BETWEEN 1 AND 20.5",
    "color = 'red' AND age > 18",
    "color = 'blue' OR region LIKE 'eu-%' AND NOT age < 18",
    "age + 1 = 22",
    "age < price",
    "no_convert_string_expressions: color = 'red' AND priority > 3",
    "XPATH '/order/item[@count > 5]'",
]


class Message:
    """A message with the least possible cost."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = 0

    def get_property(self, name: str) -> str | int | float | bool | None:
        return HEADERS.get(name)

    def get_body(self) -> bytes:
        return BODY


class CountingMessage(Message):
    """A message that counts the calls of ``get_property``."""

    __slots__ = ()

    def get_property(self, name: str) -> str | int | float | bool | None:
        self.asked += 1
        return super().get_property(name)


def seconds(call: Callable[[Message], object], tests: int, rounds: int) -> float:
    """Measure the seconds of one call, the best of the rounds."""
    message = Message()
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(tests):
            call(message)
        best = min(best, time.process_time() - begun)
    return best / tests


def compile_seconds(text: str) -> float:
    """Measure the seconds to compile a selector without the cache."""
    begun = time.process_time()
    for _ in range(50):
        Selector(text)
    return (time.process_time() - begun) / 50


def main() -> None:
    fetch = seconds(lambda message: message.get_property("color"), TESTS, ROUNDS)
    empty = seconds(lambda message: None, TESTS, ROUNDS)
    fetch -= empty
    print(f"a call of get_property: {fetch * 1e9:.0f} ns\n")
    print(f"{'selector':<64}{'ns/test':>9}{'without':>9}{'compile us':>12}")
    for text in CASES:
        selector = compile_selector(text)
        tests = TESTS if not selector.reads_body else TESTS // 100
        counting = CountingMessage()
        selector.matches(counting)
        spent = seconds(selector.matches, tests, ROUNDS)
        own = spent - counting.asked * fetch
        print(f"{text:<64}{spent * 1e9:>9.0f}{own * 1e9:>9.0f}{compile_seconds(text) * 1e6:>12.0f}")


if __name__ == "__main__":
    main()
