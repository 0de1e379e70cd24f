"""Random schedules of faults over two or three brokers of one log: what must hold at every moment, and in the end."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.replication.log import Fenced, FileChange, Operation
from stompring.replication.role import AFTER_OUTAGE, Role

from .simulated_cluster import TIMEOUT, Cluster

NAMES = ("a", "b", "c")

#: Calls of a broker to the engine before or after which it is stopped (SIGSTOP).
CALLS = ("read", "status", "claim", "claimed", "append", "appended")

durations = st.sampled_from([0.05, 0.3, 0.7, 1.2, 1.8, 2.6, 3.2, 4.5, 9.0])

actions = st.tuples(
    st.sampled_from(
        [
            "wait",
            "write",
            "write",
            "kill",
            "wipe",
            "start",
            "pause",
            "pause in a call",
            "cut",
            "heal",
            "lose answer",
            "outage",
            "release",
            "promote",
            "time of day",
            "full disk",
        ]
    ),
    st.integers(0, 2),
    durations,
    st.integers(0, 5),
)


class Simulation:
    """Carries out actions; the invariants are checked at every claim, step and write."""

    def __init__(self, brokers):
        self.cluster = Cluster()
        self.names = NAMES[:brokers]
        self.cluster.engine.on_claim = self.check_claim
        self.cluster.on_step = self.check_moment
        self.receipted = []
        self.written = 0
        self.stopped_in_call = set()
        self.claims = 0
        for name in self.names:
            self.cluster.start(name)

    # ---- invariants

    def check_moment(self):
        fresh = [broker.name for broker in self.cluster.brokers.values() if broker.node.is_fresh()]
        assert len(fresh) <= 1, f"{fresh} are fresh"
        for broker in self.cluster.brokers.values():
            node = broker.node
            if node.is_fresh():
                stored_at = node.log.stored_at
                assert broker.clock() - stored_at < TIMEOUT - 0.4

    def check_claim(self, claim):
        """A claim is about to be stored."""
        engine = self.cluster.engine
        fresh = [broker.name for broker in self.cluster.brokers.values() if broker.node.is_fresh()]
        assert not fresh, f"{fresh} fresh while another broker claims"
        self.claims += 1
        tail = engine.entries[-1] if engine.entries else None
        if tail is None or tail.change.operation is Operation.RELEASE:
            return
        now = self.cluster.clock.now
        assert now - engine.stored_at >= TIMEOUT, "silence"
        if not self.stopped_in_call:
            assert now - engine.up_since >= AFTER_OUTAGE, "three beats after an outage"

    def check_log(self):
        """Each writer begins with a claim, is the only one until the next, and leaves nothing out."""
        writer = number = -1
        for entry in self.cluster.engine.entries:
            if entry.change.operation is Operation.CLAIM:
                writer, number = entry.writer, 0
            assert (entry.writer, entry.number) == (writer, number)
            number += 1
        paths = [
            entry.change.path
            for entry in self.cluster.engine.entries
            if entry.change.operation is Operation.WHOLE
        ]
        assert len(paths) == len(set(paths)), "stored twice"
        missing = set(self.receipted) - set(paths)
        assert not missing, f"receipted and not stored: {missing}"

    # ---- actions

    def act(self, action, target, seconds, number):
        cluster = self.cluster
        name = self.names[target % len(self.names)]
        broker = cluster.brokers.get(name)
        match action:
            case "start" if broker is None:
                cluster.start(name)
            case "write":
                self.write(number)
            case "outage":
                cluster.engine.set_down(True)
                cluster.run(max(seconds, 0.7))  # a shorter one is not noticed by anybody
                cluster.engine.set_down(False)
            case "time of day":
                cluster.engine.skew += (number - 2) * 3600.0
                cluster.wall_time += (3 - number) * 86400.0
            case _ if broker is not None:
                self.act_on(broker, action, seconds, number)
        cluster.run(seconds if action == "wait" else 0.05 * number)

    def act_on(self, broker, action, seconds, number):
        cluster = self.cluster
        match action:
            case "kill":
                cluster.kill(broker.name)
            case "wipe":
                cluster.kill(broker.name)
                cluster.start(broker.name, wiped=True)
            case "pause":
                broker.paused = True
                cluster.run(seconds)
                broker.paused = False
            case "pause in a call":
                self.pause_in(broker, CALLS[number], seconds)
            case "cut":
                broker.connection.cut = True
            case "heal":
                broker.connection.cut = False
            case "lose answer":
                broker.connection.lost_answers, broker.connection.partial = 1, number / 5
            case "release":
                broker.node.release("stopped", "")
            case "promote":
                broker.node.release("promote", self.names[number % len(self.names)])
            case "full disk":
                broker.copy.fault = None if broker.copy.fault else OSError(28, "No space left on device")

    def pause_in(self, broker, call, seconds):
        def interrupt(reached):
            if reached == call and not broker.paused:
                broker.connection.interrupt = lambda call: None
                broker.paused = True
                self.stopped_in_call.add(broker.name)
                self.cluster.run(seconds)
                broker.paused = False

        broker.connection.interrupt = interrupt

    def write(self, number):
        for broker in list(self.cluster.brokers.values()):
            if broker.paused or broker.role not in (Role.ACTIVE, Role.SUSPENDED):
                continue
            paths = [f"journal/{self.written + place}" for place in range(number + 1)]
            self.written += len(paths)
            with suppress(OSError, Fenced):
                broker.node.log.append([FileChange(Operation.WHOLE, path) for path in paths])
                self.receipted += paths
                entries = self.cluster.engine.entries
                try:
                    broker.copy.apply(entries[broker.copy.sequence :])
                except OSError as fault:
                    broker.node.lose(f"the local copy failed: {fault}")

    def finish(self):
        """All faults end, those that ended are started again: soon one is active and has everything."""
        cluster = self.cluster
        for _ in range(2):  # one that was stopped finds out that it is not active any more
            for name in self.names:
                cluster.copies[name].fault = None
                broker = cluster.brokers.get(name)
                if broker is None or broker.role in (Role.FENCED, Role.FAILED, Role.RELEASED):
                    broker = cluster.start(name)
                broker.connection.cut = False
                broker.connection.lost_answers = 0
                broker.connection.interrupt = lambda call: None
            cluster.run(15)
        assert len(cluster.active()) == 1
        stored = {entry.change.path for entry in cluster.engine.entries if entry.change.path}
        for broker in cluster.brokers.values():
            assert broker.role in (Role.ACTIVE, Role.STANDBY)
            if broker.role is Role.STANDBY:
                assert set(broker.copy.files) == stored
        self.check_log()


@settings(max_examples=120, deadline=None)
@given(st.integers(2, 3), st.lists(actions, min_size=5, max_size=40))
def test_no_schedule_of_faults_makes_two_brokers_active_or_loses_an_entry(brokers, schedule):
    simulation = Simulation(brokers)
    for action, target, seconds, number in schedule:
        simulation.act(action, target, seconds, number)
        simulation.check_log()
    simulation.finish()


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 3), st.floats(0, 30), st.integers(0, 1000))
def test_takeover_is_done_a_second_after_its_timeout(brokers, killed_after, seed):
    cluster = Cluster()
    cluster.starts = seed
    for name in NAMES[:brokers]:
        cluster.start(name)
    cluster.run(1)
    cluster.run(killed_after)
    (active,) = cluster.active()
    cluster.kill(active)
    stored_at = cluster.engine.stored_at
    cluster.run(20, until=lambda: bool(cluster.active()))
    assert TIMEOUT <= cluster.clock.now - stored_at <= TIMEOUT + 1
