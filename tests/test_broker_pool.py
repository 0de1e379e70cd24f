"""The brokers of the tests, and the process that they are forked from, end with the process that runs the tests."""

import os
import select
import subprocess
import sys
from pathlib import Path

from .broker_document import broker_xml
from .broker_process import PATIENCE, ROOT

RUNNER = """
import os, sys, time
from pathlib import Path
from tests.broker_process import BrokerProcess
config, other = map(Path, sys.argv[1:])
brokers = [BrokerProcess(config).__enter__(), BrokerProcess(config, other, forked=False).__enter__()]
print(Path(f"/proc/self/task/{os.getpid()}/children").read_text(), flush=True)
time.sleep(1000)
"""


def test_nothing_outlives_a_runner_that_is_killed(tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    words = [sys.executable, "-c", RUNNER, str(config), str(tmp_path / "other")]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        children = [int(word) for word in runner.stdout.readline().split()]
        names = {Path(f"/proc/{child}/comm").read_text().strip() for child in children}
        assert len(children) == 3 and {"broker pool", "tested broker"} < names
        ends = [os.pidfd_open(child) for child in children]
        runner.kill()
        for end in ends:
            ended = select.poll()  # select() takes no descriptor above 1023
            ended.register(end, select.POLLIN)
            assert ended.poll(PATIENCE * 1000)
            os.close(end)
