"""``stompring doctor``: checks the configuration, the files and the machine of a broker."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import re
import resource
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click

from stompring import __version__, build
from stompring.errors import ConfigurationError
from stompring.security.access import CLOSE_MANAGEMENT, open_management
from stompring.settings.artemis import describe_ignored
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.machine import DataDirectory, data_directory, machine_memory, shipped_file
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    AddressSettings,
    BrokerConfiguration,
    HttpAcceptor,
    ReplicatedLogSettings,
    ResourceLimit,
    StompAcceptor,
    options_of,
)
from stompring.store.datadir import is_locked

from .check_config import (
    acceptors,
    check_data,
    check_queues,
    check_replicated_log,
    listen_fault,
    read_certificates,
    read_security_files,
)
from .options import JSON, command, option
from .output import (
    DEFAULT,
    FAILED,
    bytes_text,
    counted,
    default_file,
    echo_json,
    existing,
    one_line,
    reachable,
)
from .run import state_directory

OK, WARNING, ERROR = "ok", "warning", "error"

#: Minimum number of file descriptors: a broker with fewer serves few clients.
FEW_FILES = 4096

#: Maximum share of the memory for messages. A larger share leaves too little memory for connections and Python.
MEMORY_SHARE = 0.6

#: Limits of the measurement of the disk: seconds, and number of syncs.
SYNC_SECONDS, SYNCS = 1.0, 100

#: Milliseconds that a typical sync may take. With slower syncs durable messages are slow.
SLOW_SYNC = 20.0

#: Percentage points below max-disk-usage from which the disk counts as almost full.
DISK_MARGIN = 10

#: Seconds by which the time of a file may be ahead of the clock without a warning.
CLOCK_TOLERANCE = 5.0

#: Start of 2024 in epoch seconds. A clock that shows an earlier time was never set.
EARLIEST = 1_704_067_200

#: Seconds to wait for an answer of the listener on a port.
PROBE = 2.0

_IN_MEMORY = {"tmpfs", "ramfs"}
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs"}


class Finding(NamedTuple):
    """One line of the output. ``action`` is the advice on a warning or an error."""

    check: str
    level: str
    text: str
    action: str | None = None


Findings = Iterator[Finding]


@command()
def doctor(
    config: str | None = option(
        "FILE", f"The broker.xml to check.  [default: {DEFAULT}, else the packaged configuration]"
    ),
    data: str | None = option("DIR", "Data directory, as for stompring run."),
    as_json: bool = JSON,
) -> None:
    """Check configuration, files, permissions and machine before or while a broker runs.

    Run it as the user of the broker. To measure syncs, it writes a small temporary file into the data directory;
    it changes nothing else. The exit code is 1 if there is an error; warnings do not count.

    \b
    Examples:
      stompring doctor
      stompring doctor --config /srv/orders/etc/broker.xml
      stompring doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    findings = list(examine(config, data))
    counts = {level: sum(each.level == level for each in findings) for level in (OK, WARNING, ERROR)}
    if as_json:
        echo_json({"findings": [each._asdict() for each in findings], **counts}, ascii=True)
    else:
        for each in findings:
            label = click.style(
                each.level.ljust(7), fg={OK: "green", WARNING: "yellow", ERROR: "red"}[each.level]
            )
            click.echo(f"{label}  {each.check.ljust(13)}  {one_line(each.text)}")
            if each.action is not None:
                click.echo(f"{' ' * 24}{one_line(each.action)}")
        click.echo(f"{counts[OK]} ok, {counts[WARNING]} warnings, {counts[ERROR]} errors")
    if counts[ERROR]:
        raise SystemExit(FAILED)


def examine(config: str | None, data: str | None) -> Findings:
    """Run all checks, and yield their findings in order."""
    yield from software()
    if config is None and default_file() is None:
        file, data = str(shipped_file("config", "broker.xml")), data or str(state_directory())
    else:
        file = existing(config)
    try:
        configuration = read_broker_xml(file)
    except ConfigurationError as fault:
        yield Finding(
            "configuration", ERROR, str(fault), "correct the file; docs/settings.md lists all elements"
        )
        yield from clock(None)
        return
    directories = data_directory(configuration, data) if configuration.persistence_enabled else None
    yield from configured(configuration, data)
    yield from secrets(configuration)
    if configuration.replicated_log:
        yield from replicated_log(configuration.replicated_log)
    yield from limits(configuration)
    yield from limits_off(configuration)
    if directories:
        yield from disk(configuration, directories)
    yield from clock(directories)
    running = False
    with suppress(OSError):
        running = directories is not None and is_locked(directories.root)
    yield from ports(configuration, running)


# ---- software


def software() -> Findings:
    """Check the versions of Python, stompring and its libraries, and list the installed extras."""
    release = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", OK, f"Python {release} ({sys.executable}), stompring {__version__} ({build()})")
    try:
        requirements = requires("stompring") or []
    except PackageNotFoundError:
        yield Finding("libraries", WARNING, "stompring is not installed: no list of its libraries")
        return
    needed: defaultdict[str, list[str]] = defaultdict(list)  # libraries by extra; key "": always required
    for line in requirements:
        ((name, extra),) = re.findall(r"^([\w.-]+)(?:.*extra == ['\"]([\w-]+))?", line)
        if name != "stompring":
            needed[extra].append(name)
    own = needed[""]
    have = {name: _version(name) for names in needed.values() for name in names}
    missing = [name for name in own if have[name] is None]
    if missing:
        yield Finding(
            "libraries", ERROR, f"missing: {', '.join(missing)}", "pip install --force-reinstall stompring"
        )
    else:
        yield Finding("libraries", OK, ", ".join(f"{name} {have[name]}" for name in sorted(own)))
    for optional in ("client", "ha", "ldap", "oidc", "plugins", "spark"):
        absent = [name for name in needed[optional] if have[name] is None]
        text = "installed"
        if absent:
            text = f"not installed (missing: {', '.join(absent)}); pip install 'stompring[{optional}]'"
        yield Finding("extras", OK, f"{optional}: {text}")
    yield from reactor()


def reactor() -> Findings:
    """Check whether the broker can run on stompring's own reactor, which is faster than Twisted's."""
    from stompring.server.reactor import STOMPRING, NotAvailable, make_reactor  # imports Twisted

    try:
        make_reactor().dispose()
    except NotAvailable as why:
        action = None
        if "lacks" in str(why):
            action = "install a version of Twisted that this version of stompring knows"
        yield Finding("reactor", WARNING, f"Twisted's stock one, which is slower: {why}", action)
    else:
        yield Finding("reactor", OK, f"{STOMPRING}; 'stompring run --reactor stock' chooses Twisted's")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# ---- configuration


def configured(configuration: BrokerConfiguration, data: str | None) -> Findings:
    """Check plugins, certificates, users, roles and the data directory: read them as a start of the broker does."""
    assert configuration.file is not None
    faults = 0
    certificates: list[tuple[str, str, str | None]] = []
    checks: Sequence[Callable[[BrokerConfiguration], object]] = (
        check_queues,
        lambda each: certificates.extend(read_certificates(each)),
        read_security_files,
        check_replicated_log,
        lambda each: check_data(each, data),
    )
    for check in checks:
        try:
            check(configuration)
        except ConfigurationError as fault:
            faults += 1
            yield Finding("configuration", ERROR, str(fault), "correct it, then run: stompring check-config")
    if not faults:
        yield Finding("configuration", OK, configuration.file)
    for each in configuration.warnings:
        yield Finding("configuration", WARNING, str(each))
    ignored = describe_ignored(configuration.ignored)
    if ignored:
        yield Finding("configuration", OK, ignored)
    for name, shown, warning in certificates:
        if warning is None:
            yield Finding("certificates", OK, f"acceptor {name}: {shown}")
        else:
            yield Finding(
                "certificates", WARNING, warning, "renew the certificate; the broker reads it on reload"
            )
    if not configuration.security_enabled:
        yield Finding("security", OK, "off: every client of this machine has all permissions")
        return
    for each in open_management(configuration):
        yield Finding("security", WARNING, each, CLOSE_MANAGEMENT)


def secrets(configuration: BrokerConfiguration) -> Findings:
    """Check which users may read or change broker.xml, the files of users and roles, and the files of keys."""
    files: list[tuple[str | None, bool]] = [(configuration.file, False)]
    if configuration.security_enabled:
        files.append((configuration.certificate_users_file, True))
        if configuration.uses_users_file:
            files += [(configuration.users_file, True), (configuration.roles_file, False)]
    files += [(file, True) for file in _key_files(configuration)]
    log = configuration.replicated_log
    if log:
        files += [(log.credentials, True), (log.key, True)]
    known = dict.fromkeys((Path(file), secret) for file, secret in files if file is not None)
    faults = [finding for file, secret in known for finding in _permissions(file, secret)]
    yield from faults
    if not faults:
        yield Finding(
            "permissions", OK, f"{counted(len(known), 'file')} checked: only the owner reads secrets"
        )


def _key_files(configuration: BrokerConfiguration) -> Iterator[str]:
    for acceptor in acceptors(configuration):
        if acceptor.tls is None:
            continue
        yield from acceptor.tls.key_path
        if acceptor.tls.key_path:
            continue
        for place in acceptor.tls.key_store_path:
            path = Path(place)
            for file in sorted(path.glob("*.pem")) if path.is_dir() else [path]:
                beside = file.with_suffix(".key")
                yield str(beside if beside.exists() else file)


def _permissions(file: Path, secret: bool) -> Findings:
    try:
        status = file.stat()
        above = file.resolve().parent.stat()
    except FileNotFoundError:
        yield Finding(
            "permissions", ERROR, f"{file} does not exist", "create users with: stompring user add NAME"
        )
        return
    except OSError as fault:
        yield Finding("permissions", ERROR, f"{file}: {fault.strerror}", "run this as the user of the broker")
        return
    mode = stat.S_IMODE(status.st_mode)
    if secret and mode & 0o077:
        who = "everybody" if mode & 0o007 else "its group"
        yield Finding(
            "permissions",
            ERROR if mode & 0o007 else WARNING,
            f"{file} is accessible by {who} (mode {mode:04o})",
            f"chmod 0600 {file}",
        )
    elif mode & 0o002:
        yield Finding(
            "permissions", ERROR, f"{file} can be changed by everybody (mode {mode:04o})", f"chmod o-w {file}"
        )
    if above.st_mode & 0o002 and not above.st_mode & stat.S_ISVTX:
        yield Finding(
            "permissions",
            ERROR,
            f"any user can replace files in {file.resolve().parent}",
            f"chmod o-w {file.resolve().parent}",
        )
    if status.st_uid not in (os.geteuid(), 0):
        yield Finding(
            "permissions",
            WARNING,
            f"{file} belongs to {_user(status.st_uid)}, this command runs as {_user(os.geteuid())}",
            "run this as the user of the broker",
        )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


# ---- the replicated log


def replicated_log(settings: ReplicatedLogSettings) -> Findings:
    """Check that the engine answers, that the log cannot lose entries, and which broker is active."""
    from stompring.replication.log import LogFull, LogMissing, LogUnavailable, UnsafeLog

    from .ha import look, opened

    check, where = "replicated log", f"{settings.stream} at {settings.url}"
    try:
        with opened(settings) as log:
            view = look(log, settings)
    except LogMissing as fault:
        yield Finding(check, ERROR, f"{where}: {fault}", "create it: stompring ha init")
        return
    except UnsafeLog as fault:
        yield Finding(check, ERROR, f"{where}: {fault}")
        return
    except (LogUnavailable, LogFull) as fault:
        yield Finding(
            check,
            ERROR,
            f"{where}: the engine does not answer: {fault}",
            "start the engine, or correct url, user and certificates in <replicated-log>",
        )
        return
    for problem in view.problems:
        yield Finding(check, ERROR if view.unsafe else WARNING, f"{where}: {problem}")
    if view.status and not view.problems and view.active:
        yield Finding(
            check, OK, f"{where}: {view.status.replicas} replicas, active broker {view.active.broker}"
        )


# ---- the machine


def limits(configuration: BrokerConfiguration) -> Findings:
    """Check that the limits of this process for open files and memory suffice for the configuration."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        yield Finding("open files", OK, "no limit")
    else:
        wanted = max(FEW_FILES, (configuration.global_max_connections or 0) + 1000)
        if hard < wanted:
            yield Finding(
                "open files",
                WARNING,
                f"at most {hard:,}, the configuration needs {wanted:,}",
                "raise it: ulimit -Hn, or LimitNOFILE of the systemd unit",
            )
        else:
            yield Finding("open files", OK, f"at most {hard:,}")
    memory, size = machine_memory(), configuration.global_max_size
    action = "lower <global-max-size>, or give the machine or its control group more memory"
    if size < 0:
        yield Finding(
            "memory", WARNING, f"global-max-size -1: messages may take all of {bytes_text(memory)}", action
        )
    elif size >= memory:
        yield Finding(
            "memory",
            ERROR,
            f"global-max-size {bytes_text(size)} is more than the memory, {bytes_text(memory)}",
            action,
        )
    elif size > MEMORY_SHARE * memory:
        yield Finding(
            "memory",
            WARNING,
            f"global-max-size {bytes_text(size)} leaves too little of {bytes_text(memory)}",
            action,
        )
    else:
        yield Finding("memory", OK, f"messages may take {bytes_text(size)} of {bytes_text(memory)}")


#: Settings that do not limit resources, or for which -1 means another limit, though their type is like "byteLimit".
NO_LIMITS = {
    "connections_allowed",
    "web_socket_max_frame_payload_length",
    "max_delivery_attempts",
    "auto_delete_queues_message_count",
    "default_max_consumers",
    "max_read_page_messages",
}


def limits_off(configuration: BrokerConfiguration) -> Findings:
    """List the limits that are off: settings with the value -1, and a type such as "byteLimit" or "countOrNoLimit"."""
    core = _off(configuration, BrokerConfiguration)
    if "max-disk-usage" not in core or configuration.min_disk_free >= 0:  # one of these two limits is enough
        core = [each for each in core if each not in ("max-disk-usage", "min-disk-free")]
    ways = [("core", core)]
    for acceptor in configuration.stomp_acceptors:
        off = _off(acceptor, StompAcceptor, parameters=True)
        off += ["handshake-timeout"] * (not acceptor.handshake_timeout)
        ways.append((f"acceptor {acceptor.name}", off))
    ways.append(
        ("address-setting #", _off(SettingsRepository.of(configuration).lookup("#"), AddressSettings))
    )
    ways += [(f"user {each.user}", _off(each, ResourceLimit)) for each in configuration.resource_limits]
    if configuration.security_enabled and not configuration.resource_limits:
        ways.append(("every user", [row.xml_name for row in options_of(ResourceLimit)]))
    text = "; ".join(f"{', '.join(names)} ({where})" for where, names in ways if names)
    yield Finding("limits", OK, f"off: {text}" if text else "none is off")


def _off(thing: object, kind: type, *, parameters: bool = False) -> list[str]:
    return [
        row.parameter_name if parameters else row.xml_name
        for row in options_of(kind)
        if row.type.endswith("Limit") and row.name not in NO_LIMITS and getattr(thing, row.name) == -1
    ]


def disk(configuration: BrokerConfiguration, directories: DataDirectory) -> Findings:
    """Check space, file system and speed of the disks that contain the journal, the pages and the retained files."""
    disks: dict[int, Path] = {}
    for directory in (directories.journal, directories.paging, directories.retention):
        if directory:
            present = next(each for each in (directory, *directory.parents) if each.is_dir())
            disks.setdefault(present.stat().st_dev, present)
    for present in disks.values():
        yield from _space(configuration, present)
        kind = filesystem(present)
        if kind in _IN_MEMORY:
            yield Finding(
                "disk",
                WARNING,
                f"{present} is in memory ({kind}): durable messages are lost when the machine restarts",
                "move the data directory to a disk: --data DIR",
            )
        elif kind in _REMOTE:
            yield Finding(
                "disk",
                WARNING,
                f"{present} is on a network file system ({kind})",
                "use a local disk: locks and syncs are unreliable there",
            )
        yield from speed(present, sync_times)


def _space(configuration: BrokerConfiguration, directory: Path) -> Findings:
    usage = shutil.disk_usage(directory)
    share, limit = 100 * (usage.total - usage.free) / usage.total, configuration.max_disk_usage
    text = f"{directory}: {bytes_text(usage.free)} free of {bytes_text(usage.total)}, {share:.0f} % used"
    if 0 <= limit <= share + DISK_MARGIN:
        yield Finding(
            "disk",
            ERROR if limit <= share else WARNING,
            f"{text}; max-disk-usage is {limit} %",
            "free space, or use another disk; beyond max-disk-usage durable messages wait",
        )
    else:
        yield Finding("disk", OK, text)


def speed(directory: Path, measure: Callable[[Path], list[float]]) -> Findings:
    """Check the time of a typical sync. ``measure`` returns the milliseconds of a few syncs, or raises OSError."""
    try:
        times = measure(directory)
    except OSError as fault:
        yield Finding(
            "disk speed",
            ERROR,
            f"cannot write in {directory}: {fault.strerror}",
            "run this as the user of the broker, and let that user write there",
        )
        return
    typical, worst = median(times), max(times)
    text = f"{directory}: a sync takes {typical:.2f} ms, at most {worst:.1f} ms ({len(times)} measured)"
    if typical > SLOW_SYNC:
        yield Finding(
            "disk speed", WARNING, text, "a receipt of a durable message waits for a sync: use a faster disk"
        )
    else:
        yield Finding("disk speed", OK, text)


def sync_times(directory: Path) -> list[float]:
    """Write 4 KiB and sync them (fdatasync), repeatedly for up to a second. Returns the milliseconds of each write.

    Raises OSError.
    """
    times: list[float] = []
    end = time.monotonic() + SYNC_SECONDS
    with tempfile.TemporaryFile(dir=directory) as file:
        while len(times) < SYNCS and (not times or time.monotonic() < end):
            begin = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begin) * 1000)
    return times


def filesystem(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The type of the file system of a path, None if unknown."""
    try:
        text = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    best, kind = "", None
    resolved = f"{path.resolve()}/"
    for escaped, name in re.findall(r"^\S+ (\S+) (\S+)", text, re.MULTILINE):
        mount = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), escaped).rstrip("/") + "/"
        if resolved.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, name
    return kind


# ---- the clock


#: Index of the member status if struct timex is read as an array of C ints. The member modes, padded to a long, and
#: four longs precede it.
_STATUS = 5 * ctypes.sizeof(ctypes.c_long) // ctypes.sizeof(ctypes.c_int)


def is_synchronized() -> bool | None:
    """Whether the kernel's clock is synchronized (NTP), None if unknown."""
    try:
        function = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    found = (ctypes.c_int * 128)()  # a buffer larger than struct timex, which adjtimex(2) fills
    if function(found) < 0:
        return None
    return not found[_STATUS] & 0x40  # STA_UNSYNC


def clock(directories: DataDirectory | None) -> Findings:
    """Check the clock: whether NTP synchronizes it, and whether files of the broker have a time in the future."""
    now = time.time()
    if now < EARLIEST:
        yield Finding(
            "clock", ERROR, f"the clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}", "set the clock"
        )
    synchronized = is_synchronized()
    if synchronized is None:
        yield Finding("clock", OK, "whether it is synchronized (NTP) cannot be found")
    elif synchronized:
        yield Finding("clock", OK, "synchronized (NTP)")
    else:
        yield Finding(
            "clock",
            WARNING,
            "not synchronized (NTP)",
            "start chrony or systemd-timesyncd: expiry and schedules follow the clock",
        )
    if directories is None:
        return
    newest = max(_times_of_files(directories), default=0.0)
    if newest > now + CLOCK_TOLERANCE:
        yield Finding(
            "clock",
            WARNING,
            f"files in {directories.root} are {newest - now:.0f} s younger than the clock: it was set back",
            "check the clock; messages with a time may be delivered late",
        )


def _times_of_files(directories: DataDirectory) -> Iterator[float]:
    for directory in (directories.root, directories.journal):
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                yield entry.stat(follow_symlinks=False).st_mtime


# ---- ports


def ports(configuration: BrokerConfiguration, running: bool) -> Findings:
    """Check whether each acceptor can listen, else name the program that answers on its port."""
    for acceptor in acceptors(configuration):
        name = f"{acceptor.name} {acceptor.host}:{acceptor.port}"
        if acceptor.port == 0:
            yield Finding("ports", OK, f"{name}: any free port")
            continue
        with ExitStack() as opened:
            fault = listen_fault(acceptor, opened)
        if fault is None:
            yield Finding("ports", OK, f"{name} is free")
        elif isinstance(fault, PermissionError):
            yield Finding(
                "ports", ERROR, f"{name}: no permission", "ports below 1024 need CAP_NET_BIND_SERVICE"
            )
        elif fault.errno != errno.EADDRINUSE:
            yield Finding(
                "ports", ERROR, f"{name}: {fault.strerror or fault}", "use an address of this machine"
            )
        else:
            who = who_answers(acceptor)
            if running:
                yield Finding(
                    "ports",
                    OK,
                    f"{name} is in use, and a broker runs on the data directory; it answers {who}",
                )
            else:
                yield Finding(
                    "ports",
                    ERROR,
                    f"{name} is in use; it answers {who}",
                    "stop that program, or use another port",
                )


def who_answers(acceptor: StompAcceptor | HttpAcceptor) -> str:
    """Describe the program on a port: its name if its answer to CONNECT or GET has one, else the answer."""
    import ssl

    request = b"GET /health/live HTTP/1.0\r\nHost: localhost\r\n\r\n"
    if isinstance(acceptor, StompAcceptor) and not acceptor.websocket.only:
        request = b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:localhost\n\n\0"
    try:
        with socket.create_connection((reachable(acceptor.host), acceptor.port), timeout=PROBE) as plain:
            connection: Any = plain
            if acceptor.tls:
                context = ssl.create_default_context()
                # do not verify the certificate: this connection sends no secret
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                connection = context.wrap_socket(plain)
            connection.sendall(request)
            answer = connection.recv(4096)
    except OSError as fault:
        return f"nothing ({fault.strerror or fault})"
    text = answer.decode("utf-8", "replace")
    if found := re.search(r"(?im)^server:\s*([^\r\n]{1,80})", text):
        return f"as {found[1]}"
    first = text.partition("\n")[0].strip()[:60]
    return f"{first!r}" if first else "nothing"
