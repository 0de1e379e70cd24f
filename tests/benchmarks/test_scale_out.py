"""The table of docs/scaling-out.md: ratios are those of the rounds, and the page has the place for it."""

from benchmarks.scale_out import BLOCK, PAGE, Measured, table


def test_the_ratio_is_the_median_of_the_rounds_and_not_of_the_rates():
    results = [
        {"one": Measured(first, 2.0), "two": Measured(second, 3.0)}
        for first, second in ((100.0, 200.0), (1000.0, 1500.0), (10.0, 10.0))
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(results).splitlines()[2:]]
    assert rows == [["one", "100", "1.00", "2.0"], ["two", "200", "1.50", "3.0"]]


def test_the_page_has_one_table_of_figures():
    (block,) = BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    assert "| two brokers, in memory" in block[0]
