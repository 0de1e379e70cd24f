"""Hosts with addresses of their own on one Ethernet bridge: network namespaces that the test makes and removes.

One direction between two hosts is cut by a wrong hardware address in the sender's neighbour table: its packets go
nowhere, in silence, as on a broken network. That needs no packet filter.
"""

import os
import shutil
import socket
import subprocess
from itertools import count

#: The host on which the clients and the test run: the bridge itself.
CLIENTS = "clients"
#: No host has it.
_NOBODY = "02:00:00:00:00:fe"
_serial = count()


def why_not():
    """Why namespaces cannot be made here, None where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "ip is not installed: with nsenter it makes network namespaces"
    name = f"sr{os.getpid()}x"
    made = _ip("netns", "add", name)
    if made.returncode:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    try:
        inside = _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
        if inside.returncode:
            return f"virtual Ethernet devices cannot be made: {inside.stderr.strip()}"
        _ip("link", "del", f"{name}a")
        bridge = _ip("link", "add", f"{name}c", "type", "bridge")
        if bridge.returncode:
            return f"bridges cannot be made: {bridge.stderr.strip()}"
        _ip("link", "del", f"{name}c")
    finally:
        _ip("netns", "del", name)
    return None


def _ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


class Loopback:
    """All hosts are this machine; nothing can be cut."""

    can_cut = False

    def __init__(self, hosts):
        self.hosts = list(hosts)

    def address(self, host):
        """The IP address of a host."""
        return "127.0.0.1"

    def command(self, host, words):
        """A command as it is started on a host."""
        return words

    def heal(self):
        """All directions work."""

    def close(self):
        """Remove the hosts."""


class Namespaces(Loopback):
    """One namespace for each host."""

    can_cut = True

    def __init__(self, hosts):
        super().__init__(hosts)
        _remove_stale()
        self._prefix = f"sr{os.getpid()}-{next(_serial)}"
        self._bridge = f"{self._prefix}br"
        self._net = ""
        self._reserved = socket.socket(socket.AF_UNIX)
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def address(self, host):
        """The IP address of a host."""
        return f"{self._net}.{self._number(host)}"

    def command(self, host, words):
        """A command as it is started on a host; its process id is that of the command."""
        return ["nsenter", f"--net=/run/netns/{self._name(host)}", "--", *words]

    def cut(self, source, target):
        """From now on no packet of ``source`` reaches ``target``. The other direction stays."""
        self._neighbour(source, target, _NOBODY)

    def heal(self):
        """All directions work."""
        everybody = [*self.hosts, CLIENTS]
        for source in everybody:
            for target in everybody:
                if source != target:
                    self._neighbour(source, target, self._hardware(target))

    def close(self):
        """Remove the hosts."""
        for host in self.hosts:
            _ip("netns", "del", self._name(host))
        _ip("link", "del", self._bridge)
        self._reserved.close()

    def _number(self, host):
        return 1 if host == CLIENTS else self.hosts.index(host) + 2

    def _name(self, host):
        return f"{self._prefix}-{host}"

    def _hardware(self, host):
        number = int(self._net.split(".")[2])
        return f"02:73:72:{number:02x}:00:{self._number(host):02x}"

    def _neighbour(self, source, target, hardware):
        where = [] if source == CLIENTS else ["-n", self._name(source)]
        device = self._bridge if source == CLIENTS else "eth0"
        words = [
            "neigh",
            "replace",
            self.address(target),
            "lladdr",
            hardware,
            "nud",
            "permanent",
            "dev",
            device,
        ]
        _sure(*where, *words)

    def _reserve(self):
        """A number that no other test on this machine has: the name of a socket is taken at once or not at all."""
        for number in range(250):
            try:
                self._reserved.bind(f"\0stompring-failover-{number}")
                return number
            except OSError:
                continue
        raise OSError("250 networks are in use")

    def _make(self):
        self._net = f"10.61.{self._reserve()}"
        _sure("link", "add", self._bridge, "address", self._hardware(CLIENTS), "type", "bridge")
        _sure("addr", "add", f"{self._net}.1/24", "dev", self._bridge)
        _sure("link", "set", self._bridge, "up")
        for host in self.hosts:
            name, outside = self._name(host), f"{self._prefix}{host}"
            _sure("netns", "add", name)
            _sure("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            _sure("link", "set", outside, "master", self._bridge, "up")
            _sure("-n", name, "link", "set", "lo", "up")
            _sure("-n", name, "link", "set", "eth0", "address", self._hardware(host), "up")
            _sure("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        self.heal()


def _sure(*words):
    done = _ip(*words)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _remove_stale():
    """Those of tests that were killed."""
    for line in _ip("netns", "list").stdout.split("\n"):
        name = line.split(" ")[0]
        if _is_stale(name):
            _ip("netns", "del", name)
    for line in _ip("-o", "link", "show", "type", "bridge").stdout.split("\n"):
        name = line.split(": ")[1] if ": " in line else ""
        if _is_stale(name):
            _ip("link", "del", name)


def _is_stale(name):
    owner = name.removeprefix("sr").partition("-")[0]
    return name.startswith("sr") and owner.isdigit() and not os.path.exists(f"/proc/{owner}")
