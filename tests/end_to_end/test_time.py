"""A process that is stopped for a while, and a clock that somebody sets."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from .steps import connected

DAY = 24 * 3600

#: The wall clock of a process, ahead by as many seconds as a file says. All other clocks are the system's.
SET_CLOCK = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, id, now);
    FILE *file = id == CLOCK_REALTIME ? fopen(getenv("CLOCK_IS_AHEAD"), "r") : NULL;
    long ahead = 0;
    if (file != NULL) {
        if (fscanf(file, "%ld", &ahead) == 1) now->tv_sec += ahead;
        fclose(file);
    }
    return result;
}
"""


def for_seconds(seconds, call):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        call()
        time.sleep(0.2)


def test_clients_that_kept_their_pace_while_the_broker_stood_still_stay_connected(start_broker):
    broker = start_broker()
    clients = [connected(broker, heart_beat="1000,0") for _ in range(20)]
    silent = connected(broker, heart_beat="1000,0")

    def beat():
        for client in clients:
            client.raw(b"\n")

    os.kill(broker.pid, signal.SIGSTOP)
    try:
        for_seconds(3, beat)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    for_seconds(1, beat)
    for client in clients:
        client.put("/queue/q", "alive")  # which waits for the RECEIPT
    silent.error("2000ms connection TTL")
    for client in [*clients, silent]:
        client.close()


@pytest.fixture(scope="module")
def set_clock(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None or not Path("/proc").is_dir():
        pytest.skip("a C compiler is not installed")
    directory = tmp_path_factory.mktemp("clock")
    source, library = directory / "clock.c", directory / "clock.so"
    source.write_text(SET_CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return library


@pytest.mark.parametrize("jump", [-DAY, pytest.param(DAY, marks=pytest.mark.long)], ids=["back", "forward"])
def test_delays_repeats_and_heart_beats_go_on_when_the_clock_is_set(set_clock, tmp_path, jump):
    ahead, config = tmp_path / "ahead", tmp_path / "broker.xml"
    ahead.write_text("0")
    config.write_text(broker_xml())
    with BrokerProcess(config, env={"LD_PRELOAD": str(set_clock), "CLOCK_IS_AHEAD": str(ahead)}) as broker:
        client = connected(broker, heart_beat="1000,500")
        client.subscribe("/queue/q", ack="auto")
        wall = int((time.time() + DAY) * 1000)
        client.put("/queue/q", "delay", AMQ_SCHEDULED_DELAY=2000)
        client.put("/queue/q", "repeat", AMQ_SCHEDULED_PERIOD=400, AMQ_SCHEDULED_REPEAT=8)
        client.put("/queue/q", "tomorrow", AMQ_SCHEDULED_TIME=wall)
        client.message("repeat")
        ahead.write_text(str(jump))
        bodies = []
        began, before = time.monotonic(), len(client.beats)
        while len(bodies) < 9 + (jump > 0):
            client.raw(b"\n")
            bodies.append(client.frame().body.decode())
        assert bodies.count("repeat") == 8 and bodies.count("delay") == 1
        assert ("tomorrow" in bodies) == (jump > 0)
        assert time.monotonic() - began > 2
        for_seconds(2.5, lambda: client.raw(b"\n"))
        client.put("/queue/other", "x")
        assert len(client.beats) > before, "the broker beats as promised"
        client.close()
