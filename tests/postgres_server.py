"""PostgreSQL as a replicated log needs it: a primary and a synchronous standby, made for the tests that use them.

The settings are small, but nothing is faked: both servers sync what they confirm. PostgreSQL does not run as root, so
its processes get the user ``postgres`` there.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from .certificates import Authority
from .ports import free_port
from .waiting import Deadline, children, until

#: Seconds that anything may take that ought to happen at once.
PATIENCE = 60.0


def binaries() -> Path | None:
    """Where ``postgres`` and ``initdb`` are: ``STOMPRING_POSTGRES``, Debian's newest version, or PATH."""
    places = [Path(os.environ["STOMPRING_POSTGRES"])] if "STOMPRING_POSTGRES" in os.environ else []
    debian = Path("/usr/lib/postgresql")
    if debian.is_dir():
        versions = [each for each in debian.iterdir() if each.name.isdecimal()]
        places += [each / "bin" for each in sorted(versions, key=lambda each: -int(each.name))]
    if found := shutil.which("pg_basebackup"):
        places.append(Path(found).resolve().parent)
    needed = ("initdb", "postgres", "pg_basebackup")
    return next((each for each in places if all((each / name).exists() for name in needed)), None)


def missing() -> str | None:
    """Why there is no PostgreSQL for tests, or None."""
    if binaries() is None:
        return "PostgreSQL is not installed"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "PostgreSQL does not run as root, and there is no user postgres"
        if shutil.which("setpriv") is None:
            return "setpriv is not installed"
    return None


def _as_postgres(words: list[str]) -> list[str]:
    """The same command with the user ``postgres``, and killed when the tests are."""
    if shutil.which("setpriv") is None:
        return words
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *user, "--pdeathsig", "KILL", "--", *words]


def _run(name: str, *words: str) -> None:
    place = binaries()
    assert place is not None
    subprocess.run(
        _as_postgres([str(place / name), *words]),
        check=True,
        cwd="/",
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE,
    )


class PostgresServer:
    """One server. Its data directory is made by `PostgresPair`."""

    def __init__(self, directory: Path, name: str, authority: Authority) -> None:
        self.name = name
        self.data = directory / name
        self.port = free_port()
        self._log = directory / f"{name}.log"
        self._sockets = directory
        self._authority = authority
        self._process: subprocess.Popen[bytes] | None = None

    def initialize(self) -> None:
        """A new, empty database cluster."""
        _run("initdb", "--no-sync", "-A", "trust", "-U", "stompring", "-E", "UTF8", "-D", str(self.data))
        self._write(
            "postgresql.auto.conf",
            """
            fsync = on
            full_page_writes = on
            synchronous_commit = on
            synchronous_standby_names = '*'
            wal_level = replica
            max_wal_senders = 4
            max_connections = 40
            shared_buffers = 32MB
            max_wal_size = 512MB
            ssl = on
            ssl_cert_file = 'server.pem'
            ssl_key_file = 'server.key'
            wal_receiver_status_interval = 1s
            wal_retrieve_retry_interval = 200ms
            """,
        )
        self._write(
            "pg_hba.conf",
            """
            local   all         all                       trust
            hostssl all         secured     127.0.0.1/32  scram-sha-256
            host    all         secured     127.0.0.1/32  reject
            host    all         all         127.0.0.1/32  trust
            host    replication all         127.0.0.1/32  trust
            """,
        )
        self._authority.issue(f"{self.name}-server.pem", key_apart=True)
        for kind in ("pem", "key"):
            source = self._authority.directory / f"{self.name}-server.{kind}"
            self._write(f"server.{kind}", source.read_text())

    def copy(self, primary: PostgresServer) -> None:
        """A standby of another server."""
        shutil.rmtree(self.data, ignore_errors=True)
        source = (
            f"host=127.0.0.1 port={primary.port} user=stompring application_name={self.name} sslmode=disable"
        )
        _run(
            "pg_basebackup",
            "--no-sync",
            "-c",
            "fast",
            "-X",
            "stream",
            "-R",
            "-d",
            source,
            "-D",
            str(self.data),
        )

    def start(self) -> None:
        place = binaries()
        assert place is not None
        words = [str(place / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        words += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._sockets}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(_as_postgres(words), cwd="/", stdout=log, stderr=log)
        deadline = Deadline(PATIENCE)
        while True:
            try:
                self.connection().close()
                return
            except psycopg.OperationalError:
                if deadline.passed() or self._process.poll() is not None:
                    raise RuntimeError(self._log.read_text(errors="replace")[-4000:]) from None
                deadline.pause(0.05)

    def connection(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the superuser, in autocommit."""
        url = f"postgresql://stompring@127.0.0.1:{self.port}/{database}?sslmode=disable&connect_timeout=10"
        return psycopg.connect(url, autocommit=True)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with self.connection() as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def configure(self, settings: Mapping[str, str]) -> None:
        """Change settings of the server that need no restart."""
        with self.connection() as connection:
            for name, value in settings.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")
            for name, value in settings.items():
                self.wait_until(f"SELECT current_setting('{name}') = '{value}'")

    def wait_until(self, question: str) -> None:
        until(lambda: self.execute(question) == [(True,)], question, PATIENCE)

    def promote(self) -> None:
        """Make a standby the primary."""
        self.execute("SELECT pg_promote()")
        self.wait_until("SELECT NOT pg_is_in_recovery()")

    def pause(self) -> None:
        """SIGSTOP for all of its processes."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL for all of its processes, as when the machine is lost. They are gone when it returns.

        A server does not start while a process of the one before has its shared memory.
        """
        if self._process is not None:
            found = self._signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None
            ended = "a process of PostgreSQL does not end"
            until(lambda: not any(_is_running(child) for child in found), ended, PATIENCE)

    def stop(self) -> None:
        """An orderly end, as after ``pg_ctl stop -m fast``."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(PATIENCE)
                self._process = None
            except subprocess.TimeoutExpired:
                self.kill()

    def _signal(self, number: int) -> set[int]:
        """To the first process, then to its children, which have sessions of their own. Returns the children."""
        assert self._process is not None
        parent = self._process.pid
        found = set(children(parent))
        with contextlib.suppress(ProcessLookupError):
            os.kill(parent, number)
            found.update(children(parent))  # nothing is started any more
            for child in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)
        return found

    def _write(self, name: str, text: str) -> None:
        path = self.data / name
        path.write_text("\n".join(line.strip() for line in text.splitlines()) + "\n")
        path.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(path, "postgres", "postgres")


def _is_running(process: int) -> bool:
    """Whether a process is there; one that has ended and was not waited for is not."""
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class PostgresPair:
    """A primary, and a synchronous standby without which it confirms nothing."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="stompring-postgres-"))
        self.directory.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
        certificates = self.directory / "certificates"
        certificates.mkdir()
        self.authority = Authority(certificates)
        self.primary = PostgresServer(self.directory, "first", self.authority)
        self.standby = PostgresServer(self.directory, "second", self.authority)

    def start(self) -> None:
        self.primary.initialize()
        self.primary.start()
        self.add_standby()

    def add_standby(self) -> None:
        """The standby is a new copy of the primary, and confirms with it."""
        self.standby.copy(self.primary)
        self.standby.start()
        self.wait_for_standby()

    def wait_for_standby(self) -> None:
        self.primary.wait_until("SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'")

    def fail_over(self) -> None:
        """Kill the primary and promote the standby: it is the primary then, without a standby."""
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def url(
        self, *, user: str = "stompring", database: str = "postgres", options: str = "sslmode=disable"
    ) -> str:
        """Of both servers, the present primary first."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://{user}@{hosts}/{database}?{options}"

    def stop(self) -> None:
        try:
            for server in (self.primary, self.standby):
                server.kill()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def postgres_pair() -> Iterator[PostgresPair]:
    """A running pair."""
    pair = PostgresPair()
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
