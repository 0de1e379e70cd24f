"""The published figures of several brokers: ratios are those of the rounds."""

from benchmarks.scale_out import Measured, medians, published


def test_the_ratio_is_the_median_of_the_rounds_and_not_of_the_rates():
    results = [
        {"one": Measured(first, 2.0), "two": Measured(second, 3.0)}
        for first, second in ((100.0, 200.0), (1000.0, 1500.0), (10.0, 10.0))
    ]
    assert medians(results) == [["one", "100", "1.00", "2.0"], ["two", "200", "1.50", "3.0"]]


def test_the_published_figures_are_a_table():
    assert "| two brokers, in memory" in published()
