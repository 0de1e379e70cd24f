"""Names as a page shows them."""

import pytest

from stompring.pipeline.report.plots import MAX_NAME, legend_labels, shortened

UUID = "4f2a9c11-7b3e-4f6a-9d2e-0123456789ab"


@pytest.mark.parametrize(
    "name, shown",
    [
        ("orders.eu", "orders.eu"),
        (UUID, "4f2a9c…"),
        (f"news.{UUID}", "news.4f2a9c…"),
        (f"{UUID}.prices", "4f2a9c….prices"),
        (UUID.replace("-", ""), "4f2a9c…"),
        ("temp-queue.1f.replies", "temp-queue.1f.replies"),
        ("temp-queue.0011223344556677.replies", "temp-queue.001122….replies"),
        ("defaced-orders", "defaced-orders"),  # letters of base 16 too, but a word
        ("x" * MAX_NAME, "x" * MAX_NAME),
        ("o" * 30 + "p" * 30, "o" * 26 + "…" + "p" * 13),
    ],
)
def test_generated_and_long_names_are_shortened(name, shown):
    assert shortened(name) == shown
    assert len(shortened(name)) <= MAX_NAME


def test_names_that_would_look_the_same_get_numbers():
    same = [f"{UUID[:-1]}{digit}" for digit in "bcd"]
    assert legend_labels([same[0], "orders", *same[1:]]) == [
        "4f2a9c… (1)",
        "orders",
        "4f2a9c… (2)",
        "4f2a9c… (3)",
    ]
