"""Brokers over a simulated engine, stepped in the order of time on one clock."""

from random import Random

from stompring.replication.log import Beat, FileChange, Operation
from stompring.replication.role import Node, Role, Timing

from .simulated_engine import SimulatedClock, SimulatedCopy, SimulatedEngine, SimulatedLog

TIMEOUT = 3.0


class Callbacks:
    def __init__(self):
        self.events = []
        self.requests = []

    def on_active(self):
        self.events.append("active")

    def on_suspended(self):
        self.events.append("suspended")

    def on_resumed(self):
        self.events.append("resumed")

    def on_lost(self, reason, exit_code):
        self.events.append(f"lost {exit_code}")

    def on_step_down(self, request):
        self.requests.append(request)


class Broker:
    """A broker of the simulation: its node, connection and copy."""

    def __init__(self, engine, name, copy, seed=0, wall_clock=lambda: 0.0):
        self.name = name
        self.copy = copy
        self.connection = SimulatedLog(engine)
        self.callbacks = Callbacks()
        self.clock = lambda: engine.clock.now + seed * 1e6  # each machine has its own
        self.node = Node(
            self.connection,
            copy,
            Beat(name),
            self.callbacks,
            Timing(TIMEOUT),
            clock=self.clock,
            wall_clock=wall_clock,
            random=Random(f"{name} {seed}"),
            read_wait=0,
        )
        self.due = engine.clock.now
        self.paused = False

    @property
    def role(self):
        return self.node.status().role


class Cluster:
    """Brokers of one engine, stepped in the order of time."""

    def __init__(self, *names, max_bytes=-1):
        self.clock = SimulatedClock()
        self.engine = SimulatedEngine(self.clock, max_bytes)
        self.brokers = {}
        self.copies = {}
        self.starts = 0
        self.wall_time = 0.0
        self.on_step = lambda: None
        for name in names:
            self.start(name)

    def start(self, name, *, wiped=False):
        if wiped or name not in self.copies:
            self.copies[name] = SimulatedCopy()
        self.starts += 1
        broker = self.brokers[name] = Broker(
            self.engine, name, self.copies[name], self.starts, lambda: self.wall_time
        )
        return broker

    def kill(self, name):
        del self.brokers[name]

    def run(self, seconds, until=lambda: False):
        """Let time pass; returns how much did."""
        began = self.clock.now
        end = began + seconds
        while not until():
            running = [broker for broker in self.brokers.values() if not broker.paused]
            broker = min(running, key=lambda each: each.due, default=None)
            if broker is None or broker.due > end:
                self.clock.now = max(self.clock.now, end)
                break
            self.clock.now = max(self.clock.now, broker.due)
            delay = broker.node.step()
            self.on_step()
            broker.due = self.clock.now + max(delay, 0.001) + broker.connection.take_waited()
        return self.clock.now - began

    def active(self):
        return [broker.name for broker in self.brokers.values() if broker.role is Role.ACTIVE]

    def until_active(self, name, most=20.0):
        broker = self.brokers[name]
        taken = self.run(most, until=lambda: broker.role is Role.ACTIVE)
        assert broker.role is Role.ACTIVE
        return taken

    def until_one(self, most=20.0):
        """Until any broker is active."""
        return self.run(most, until=lambda: bool(self.active()))

    def write(self, name, path="journal/1", data=b"x"):
        return self.brokers[name].node.log.append([FileChange(Operation.WHOLE, path, data=data)])
