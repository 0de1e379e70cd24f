"""Which build runs: the one that the tests were started for, in this process and in brokers."""

import os

import stompring

EXPECTED = os.environ.get("STOMPRING_BUILD", "pure Python")


def test_the_tests_run_the_build_that_was_asked_for():
    assert stompring.build() == EXPECTED


def test_a_broker_reports_its_build(broker, management):
    assert management.ask("GET", "/broker")["build"] == EXPECTED
    assert any(f"stompring {stompring.__version__} ({EXPECTED})" in line for line in broker.log)
