"""What goes wrong, one kind after the other: each does its damage, waits, and repairs it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .network import CLIENTS
from .stream import insist
from .world import BROKERS, MACHINE, NODES, STREAM, World


@dataclass
class Scene:
    """The world at the moment of a fault. ``began`` is when it struck, ``healed`` when service was possible again,
    ``acted`` when all of it was over.
    """

    world: World
    random: Random
    active: str
    began: float = 0.0
    healed: float = 0.0
    acted: float = 0.0
    told: list[str] = field(default_factory=list)

    @property
    def standby(self):
        """The broker that is not active."""
        return self.world.other(self.active)

    @property
    def network(self):
        """The network, which can be cut."""
        return self.world.network

    def kill(self, *names, down=False):
        """The fault is that these processes are killed."""
        self.strike()
        self.world.kill(*names, down=down)

    def stop(self, name):
        """The fault is that this process is stopped."""
        self.strike()
        self.world.stop(name)

    def strike(self):
        """The fault comes now."""
        self.began = time.monotonic()

    def repair(self):
        """What made service impossible ends now."""
        self.healed = time.monotonic()

    def tell(self, what):
        """A detail for the report of a failure."""
        self.told.append(what)

    def sleep(self, least, most):
        """Some seconds."""
        time.sleep(self.random.uniform(least, most))

    def takeover(self, seconds=30.0):
        """Wait until the other broker is ready, or the time is over."""
        deadline = time.monotonic() + seconds
        while not self.world.ready[self.standby]:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


Act = Callable[[Scene], None]


@dataclass(frozen=True)
class FaultKind:
    """One kind. ``keeps`` says that the active broker must stay active. ``needs``: ``cut``, ``fill``, ``clock``."""

    name: str
    act: Act
    needs: str = ""
    keeps: bool = False
    timeless: bool = False  # nothing scheduled may be under way
    nats: bool = True  # it is about the replicated log


KINDS = {}


def kind(name, needs="", *, keeps=False, timeless=False, nats=True):
    """Enter a function into `KINDS`."""

    def enter(act):
        KINDS[name] = FaultKind(name, act, needs, keeps, timeless, nats)
        return act

    return enter


# ---- brokers


@kind("active killed", nats=False)
def kill_active(scene):
    """kill -9; a supervisor starts it again a second later."""
    scene.kill(scene.active)


@kind("active killed, directory wiped")
def wipe_active(scene):
    """It comes back with an empty disk, as a standby."""
    scene.kill(scene.active, down=True)
    scene.world.wipe(scene.active)
    scene.sleep(0, 6)


@kind("standby killed", keeps=True, nats=False)
def kill_standby(scene):
    """kill -9."""
    scene.kill(scene.standby)


@kind("standby killed, directory wiped", keeps=True)
def wipe_standby(scene):
    """It reads everything again."""
    scene.kill(scene.standby, down=True)
    scene.world.wipe(scene.standby)
    scene.sleep(0, 3)


@kind("active stopped for up to 2 s")
def stop_active_shortly(scene):
    """SIGSTOP, and SIGCONT before anybody takes over, or about then."""
    scene.stop(scene.active)
    scene.sleep(0.2, 2)
    scene.world.resume(scene.active)


@kind("active stopped, continued after the takeover")
def stop_active(scene):
    """SIGSTOP; SIGCONT when another is active: the old one must find out before it does anything."""
    scene.stop(scene.active)
    scene.takeover()
    scene.sleep(0, 3)
    scene.world.resume(scene.active)
    if not scene.world.wait_ended(scene.active, 15):
        scene.tell(f"{scene.active} did not end after SIGCONT")


@kind("active stopped about as long as the timeout")
def stop_active_closely(scene):
    """SIGCONT comes in the middle of the takeover."""
    scene.stop(scene.active)
    scene.sleep(2.5, 4.5)
    scene.world.resume(scene.active)


@kind("standby stopped and continued", keeps=True)
def stop_standby(scene):
    """It has much to read, and must not take over."""
    scene.stop(scene.standby)
    scene.sleep(1, 8)
    scene.world.resume(scene.standby)


@kind("both brokers killed one after the other")
def kill_both(scene):
    """The second one in the middle of its takeover."""
    scene.kill(scene.active)
    scene.sleep(2.5, 5)
    scene.world.kill(scene.standby)
    scene.repair()


@kind("active ends in order", nats=False)
def terminate_active(scene):
    """SIGTERM."""
    scene.strike()
    scene.world.terminate(scene.active)
    scene.world.wait_ended(scene.active, 30)


@kind("standby promoted")
def promote(scene):
    """``stompring ha promote``."""
    scene.strike()
    done = scene.world.run_cli(
        "ha", "promote", scene.standby, "--config", str(scene.world.directory / f"{scene.standby}.xml")
    )
    if done.returncode:
        raise AssertionError(f"stompring ha promote: {done.stdout}{done.stderr}")


# ---- machines


@kind("machine of the active lost")
def lose_machine(scene):
    """Broker and node of NATS at the same moment."""
    scene.kill(scene.active, MACHINE[scene.active], down=True)
    if scene.random.random() < 0.5:
        scene.world.wipe(scene.active)
    scene.takeover()
    scene.sleep(0, 3)


@kind("machine of the active lost, with the stream leader")
def lose_leader_machine(scene):
    """As `lose_machine`, where the log's leader is that node."""
    move_leader(scene, MACHINE[scene.active])
    lose_machine(scene)


@kind("machine of the standby lost")
def lose_standby_machine(scene):
    """Broker and node."""
    scene.kill(scene.standby, MACHINE[scene.standby], down=True)
    scene.sleep(2, 6)


# ---- nodes of NATS


@kind("stream leader killed")
def kill_leader(scene):
    """The others elect another one."""
    scene.kill(scene.world.leader(), down=True)
    scene.sleep(2, 10)


@kind("stream leader stopped and continued")
def stop_leader(scene):
    """SIGSTOP: its connections stay, and nothing answers."""
    leader = scene.world.leader()
    scene.stop(leader)
    scene.sleep(1, 12)
    scene.world.resume(leader)


@kind("follower killed", keeps=True)
def kill_follower(scene):
    """Two of three nodes are enough."""
    scene.kill(_follower(scene), down=True)
    scene.sleep(1, 5)


@kind("quorum lost and back")
def lose_quorum(scene):
    """Two nodes are killed. Nothing is receipted before one is back."""
    nodes = scene.random.sample(NODES, 2)
    scene.kill(*nodes, down=True)
    scene.sleep(1, 10)
    first, second = scene.random.sample(nodes, 2)
    scene.repair()
    scene.world.release(first)
    scene.sleep(0, 6)
    scene.world.release(second)


@kind("all nodes of NATS killed")
def kill_nodes(scene):
    """Power failure of the log."""
    scene.kill(*NODES, down=True)
    scene.sleep(0, 6)
    scene.repair()
    scene.world.release(*NODES)


@kind("quorum lost, and the active")
def lose_quorum_and_active(scene):
    """The standby takes over as soon as it can."""
    nodes = scene.random.sample(NODES, 2)
    scene.kill(*nodes, down=True)
    scene.sleep(0, 3)
    scene.world.kill(scene.active, down=True)
    scene.sleep(0, 5)
    scene.repair()
    scene.world.release(*nodes)
    scene.takeover(60)


@kind("files of one node damaged")
def damage_node(scene):
    """Block files are truncated or changed while the node is down."""
    node = scene.random.choice(NODES)
    scene.kill(node, down=True)
    blocks = sorted(scene.world.store(node).rglob(f"{STREAM}/msgs/*.blk"))
    for block in scene.random.sample(blocks, min(len(blocks), scene.random.randint(1, 3))):
        _damage(block, scene)
    if scene.random.random() < 0.5:
        for index in scene.world.store(node).rglob("index.db"):
            index.unlink()
    scene.sleep(0, 2)


def _damage(block, scene):
    size = block.stat().st_size
    if not size:
        return
    if scene.random.random() < 0.5:
        cut = scene.random.randint(0, size - 1)
        scene.tell(f"{block.parts[-6]} {block.name}: truncated from {size} to {cut} bytes")
        with block.open("r+b") as file:
            file.truncate(cut)
        return
    places = [scene.random.randrange(size) for _ in range(20)]
    scene.tell(f"{block.parts[-6]} {block.name}: {len(places)} of {size} bytes changed")
    with block.open("r+b") as file:
        for at in places:
            file.seek(at)
            file.write(bytes([scene.random.randrange(256)]))


def _follower(scene):
    leader = scene.world.leader()
    return scene.random.choice([node for node in NODES if node != leader])


def move_leader(scene, node):
    """Have a node become the leader of the stream, a few tries long."""
    for _ in range(8):
        if scene.world.leader() == node:
            return
        insist(lambda: _step_down(scene.world))
        time.sleep(0.7)
    scene.tell(f"{node} did not become the leader")


async def _step_down(world):
    import nats

    connection = await nats.connect(world.urls.split(","), allow_reconnect=False)
    try:
        await connection.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", b"", timeout=5)
    except TimeoutError:
        pass
    finally:
        await connection.close()


# ---- the network


def _cut(scene, sources, targets, ways="both"):
    scene.strike()
    scene.tell(f"{', '.join(sources)} cut from {', '.join(targets)}, {ways}")
    for source in sources:
        for target in targets:
            if ways in ("both", "there"):
                scene.network.cut(source, target)
            if ways in ("both", "back"):
                scene.network.cut(target, source)


def _ways(scene):
    return scene.random.choice(["both", "both", "there", "back"])


@kind("active cut from the log", "cut")
def cut_active(scene):
    """Its clients reach it, it reaches no node."""
    _cut(scene, [scene.active], list(NODES))
    scene.takeover()
    scene.sleep(0, 5)
    scene.world.reconnect()


@kind("active cut from the log, one way", "cut")
def cut_active_one_way(scene):
    """What it appends does not arrive, or the confirmation does not."""
    _cut(scene, [scene.active], list(NODES), scene.random.choice(["there", "back"]))
    scene.takeover()
    scene.sleep(0, 5)
    scene.world.reconnect()


@kind("active cut from the log for up to 2 s", "cut")
def cut_active_shortly(scene):
    """Back before anybody takes over."""
    _cut(scene, [scene.active], list(NODES), _ways(scene))
    scene.sleep(0.2, 2)
    scene.world.reconnect()


@kind("active cut from the stream leader", "cut")
def cut_active_from_leader(scene):
    """The other nodes are reached."""
    _cut(scene, [scene.active], [scene.world.leader()], _ways(scene))
    scene.sleep(2, 10)
    scene.world.reconnect()


@kind("active cut from the standby", "cut", keeps=True)
def cut_brokers(scene):
    """They never talk to each other."""
    _cut(scene, [scene.active], [scene.standby])
    scene.sleep(1, 5)
    scene.world.reconnect()


@kind("standby cut from the log", "cut", keeps=True)
def cut_standby(scene):
    """It must not take over when it is back."""
    _cut(scene, [scene.standby], list(NODES), _ways(scene))
    scene.sleep(2, 10)
    scene.world.reconnect()


@kind("machine of the active cut off", "cut")
def cut_machine(scene):
    """Broker and node reach each other, and nobody else."""
    machine = [scene.active, MACHINE[scene.active]]
    others = [host for host in (*NODES, *BROKERS, CLIENTS) if host not in machine]
    _cut(scene, machine, others)
    scene.takeover()
    scene.sleep(0, 5)
    scene.world.reconnect(late=20.0)


@kind("stream leader cut from the other nodes", "cut")
def cut_leader(scene):
    """Both brokers reach it."""
    leader = scene.world.leader()
    _cut(scene, [leader], [node for node in NODES if node != leader], _ways(scene))
    scene.sleep(2, 12)
    scene.world.reconnect()


@kind("follower cut from the other nodes", "cut")
def cut_follower(scene):
    """Both brokers reach it."""
    follower = _follower(scene)
    _cut(scene, [follower], [node for node in NODES if node != follower], _ways(scene))
    scene.sleep(2, 8)
    scene.world.reconnect()


@kind("all nodes cut from each other", "cut")
def cut_nodes(scene):
    """No quorum, but each node answers."""
    scene.strike()
    for source in NODES:
        for target in NODES:
            if source != target:
                scene.network.cut(source, target)
    scene.sleep(1, 8)
    scene.repair()
    scene.world.reconnect()


# ---- what is full


@kind("log full")
def fill_log(scene):
    """The stream has its limit where it stands."""
    scene.strike()
    before = insist(lambda: _limit(scene.world, None))
    scene.sleep(2, 6)
    scene.repair()
    insist(lambda: _limit(scene.world, before))


async def _limit(world, size):
    """Set the limit of the stream to ``size`` bytes, None: a little more than it has. Returns what it was."""
    import nats

    connection = await nats.connect(world.urls.split(","), allow_reconnect=False)
    try:
        context = connection.jetstream(timeout=10)
        found = await context.stream_info(STREAM)
        before = found.config.max_bytes or -1
        found.config.max_bytes = found.state.bytes + 20_000 if size is None else size
        await context.update_stream(found.config)
        return before
    finally:
        await connection.close()


@kind("disk of the active full", "fill")
def fill_active(scene):
    """A local fault: the active gives up its place."""
    scene.strike()
    scene.world.fill_disk(scene.active, scene.random.choice([0, 4096, 20_000]))
    scene.takeover()
    scene.sleep(0, 4)
    scene.world.empty_disk(scene.active)


@kind("disk of the standby full", "fill", keeps=True)
def fill_standby(scene):
    """The active has nothing to do with it."""
    scene.strike()
    scene.world.fill_disk(scene.standby, scene.random.choice([0, 4096, 20_000]))
    scene.sleep(2, 8)
    scene.world.empty_disk(scene.standby)


# ---- clocks


@kind("wall clock of a broker jumps", "clock", keeps=True, timeless=True)
def jump(scene):
    """Forwards or backwards, by seconds or a day, and back."""
    broker = scene.random.choice([scene.active, scene.active, scene.standby])
    seconds = scene.random.choice([-86_400, -600, -5, 5, 600, 86_400])
    clock = scene.world.clocks[broker]
    scene.tell(f"clock of {broker}: {seconds:+} s")
    scene.strike()
    clock.jump(seconds)
    scene.sleep(2, 6)
    clock.jump(-seconds)


@kind("active killed while clocks differ", "clock", timeless=True)
def kill_with_clocks(scene):
    """The clock of the standby is minutes off."""
    seconds = scene.random.choice([-600, -30, 30, 600])
    clock = scene.world.clocks[scene.standby]
    scene.tell(f"clock of {scene.standby}: {seconds:+} s")
    clock.jump(seconds)
    scene.sleep(0.5, 1)
    scene.kill(scene.active)
    scene.takeover()
    scene.sleep(0.5, 1)
    clock.jump(-seconds)
