"""A bridge beside a remote broker that confirms, forgets, rejects and disappears at random: what arrives."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stompring.broker.bridge import BridgeState

from ..broker.test_bridge import ONE, TWO, Fixture
from .profile import examples


class BridgeMachine(RuleBasedStateMachine):
    """One queue and one bridge. The remote broker handles what it is sent in order; an ERROR ends the connection."""

    @initialize(window=st.integers(1, 2000), dead_letters=st.booleans(), detection=st.booleans())
    def begin_with(self, window, dead_letters, detection):
        settings = {"q": {"dead_letter_address": "dead", "max_delivery_attempts": 2}} if dead_letters else {}
        self.world = Fixture(
            settings,
            confirmation_window_size=window,
            connectors=(ONE, TWO),
            use_duplicate_detection=detection,
            retry_interval=125,
        )
        self.dead = self.world.queue("dead")
        self.window, self.dead_letters, self.detection = window, dead_letters, detection
        self.sent = []
        self.poison = set()
        self.accepted = []  # by the remote broker, which drops what it knows by its id
        self.known = set()
        self.handled = 0  # frames of the connection
        self.counted = None  # the connection that `handled` is about

    @property
    def remote(self):
        if self.counted is not self.world.remote:
            self.counted, self.handled = self.world.remote, 0
        return self.world.remote

    @rule(poison=st.booleans())
    def send(self, poison):
        body = b"%d" % len(self.sent)
        self.sent.append(body)
        if poison and len(self.poison) < 2:
            self.poison.add(body)
        self.world.send_all(body)

    @precondition(lambda self: self.world.bridge.state is BridgeState.CONNECTING)
    @rule(succeeds=st.booleans())
    def answer_connect(self, succeeds):
        if succeeds:
            self.remote.accept()
            self.world.settle_down()
        else:
            self.world.lose("refused")

    def handle(self, names_it=True):
        """The next frame, without its receipt; False where there is none, or it was rejected."""
        remote = self.remote
        if remote.closed or self.handled == len(remote.frames):
            return False
        headers, body = remote.frames[self.handled]
        self.handled += 1
        if body in self.poison:
            remote.worker.on_error(headers["receipt"].encode() if names_it else None, "rejected")
            self.world.settle_down()
            return False
        identifier = headers.get("_AMQ_DUPL_ID", "")
        if not identifier or identifier not in self.known:
            self.accepted.append(body)
        self.known.add(identifier)
        return True

    @precondition(lambda self: self.world.bridge.state is BridgeState.CONNECTED)
    @rule(count=st.integers(1, 5), confirmed=st.booleans(), names_it=st.booleans())
    def go_on(self, count, confirmed, names_it):
        remote = self.remote
        for _ in range(count):
            if not self.handle(names_it):
                break
            if confirmed:
                remote.worker.on_receipt(remote.frames[self.handled - 1][0]["receipt"].encode())
        self.world.settle_down()

    @precondition(lambda self: self.world.bridge.state is BridgeState.CONNECTED)
    @rule(kind=st.sampled_from(["lost", "silent error", "unwritable", "pause"]))
    def disturb(self, kind):
        if kind == "lost":
            self.world.lose()
        elif kind == "silent error":
            self.remote.worker.on_error(None, "shutting down")
            self.world.settle_down()
        elif kind == "unwritable":
            self.remote.worker.on_unwritable()
        else:
            self.world.bridge.set_paused(True)

    @rule()
    def relax(self):
        self.world.bridge.set_paused(False)
        if self.world.bridge.state is BridgeState.CONNECTED:
            self.remote.worker.on_writable()
        self.world.settle_down()

    @rule(milliseconds=st.sampled_from([125, 1000]))
    def wait(self, milliseconds):
        self.world.pass_time(milliseconds)

    @rule()
    def stop_and_start(self):
        self.world.bridge.stop(timeout=0)
        self.world.bridge.start()
        self.world.settle_down()

    @invariant()
    def what_is_in_flight_is_limited(self):
        if hasattr(self, "world"):
            (worker,) = self.world.bridge.workers
            sizes = [len(ref.message.tail) for ref in worker.in_flight.values()]
            assert worker.in_flight_bytes == sum(sizes) and sum(sizes[:-1]) < self.window
            assert self.world.q.delivering == len(sizes)

    def teardown(self):
        """In the end everything has arrived, is a dead letter, or is a rejected message that is retained."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.bridge.set_paused(False)
        for _ in range(400):
            if not world.q.message_count or world.bridge.state is BridgeState.FAILED:
                break
            if world.bridge.state is BridgeState.CONNECTING:
                self.remote.accept()
            elif world.bridge.state is BridgeState.CONNECTED:
                self.remote.worker.on_writable()
                world.settle_down()
                while self.handle():
                    receipt = self.remote.frames[self.handled - 1][0]["receipt"].encode()
                    self.remote.worker.on_receipt(receipt)
                    world.settle_down()
            world.pass_time(125)
            if not self.dead_letters and self.poison:
                world.pass_time(1000)
        first = list(dict.fromkeys(self.accepted))
        expected = [body for body in self.sent if body not in self.poison]
        if self.dead_letters or not self.poison:
            # what is rejected makes place; a rejection that names no message may cost another its attempts
            dead = [ref.message.body for ref in self.dead.dispatcher.pending]
            assert sorted([*first, *(body for body in dead if body not in first)]) == sorted(self.sent)
            assert self.poison <= set(dead)
            assert first == [body for body in expected if body in first]
        else:
            head = min(self.poison, key=self.sent.index)
            assert first == expected[: self.sent.index(head)]
            assert world.q.message_count == len(self.sent) - len(first)
        if self.detection:
            assert self.accepted == first


BridgeMachine.TestCase.settings = examples(40, steps=30)
test_histories = BridgeMachine.TestCase
