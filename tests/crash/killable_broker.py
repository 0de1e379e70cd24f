"""A broker process that is killed without warning."""

import signal
import time

from ..broker_process import PATIENCE, BrokerProcess

#: What no log may contain, however the broker ended. Where no file is damaged, no queue loses what it was.
BUGS = ("Traceback", "Internal error", "Unhandled", "recreated with default attributes")


class KillableBroker(BrokerProcess):
    """A broker that does not mind how it ends, as long as it leaves no traceback."""

    def __enter__(self):
        super().__enter__()
        return self

    def __exit__(self, *exception):
        if self._process.poll() is not None:
            return  # as it was meant to
        if exception[0] is None:
            self.stop()
        else:
            self.kill()

    def kill(self):
        """SIGKILL, and wait until it is gone. Fails where its log tells of a bug, or it was dead already."""
        code = self._process.poll()
        if code is None:
            self.terminate(signal.SIGKILL)
            code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self._check_log()
        log = "\n".join(self.log)
        assert code == -signal.SIGKILL, f"the broker has ended by itself with exit code {code}:\n{log}"

    def stop(self, number=signal.SIGTERM):
        """See `BrokerProcess.stop`."""
        super().stop(number)
        self._check_log()

    def _check_log(self):
        log = "\n".join(self.log)
        assert not any(bug in log for bug in BUGS), log

    def kill_while_starting(self, chance):
        """Kill it at some moment before it is ready, or a little later; tells whether it was before."""
        deadline = time.monotonic() + chance.random() * 1.2
        while time.monotonic() < deadline and not self.is_ready:
            time.sleep(0.002)
        early = not self.is_ready
        self.kill()
        return early

    @property
    def is_ready(self):
        """Whether its log says so."""
        return any("is ready" in line for line in self.log)
