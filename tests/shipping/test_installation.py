"""Wheel and sdist are complete: installed into an empty environment they give a broker with everything it needs."""

import posixpath
import re
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest
from lxml import html

from ..broker_process import PATIENCE, ROOT
from ..packages import Environment, copy_checkout, run
from ..stomp_client import StompClient

#: Python that prints one shipped path.
PRINT_PATH = (
    "import sys; from stompring.settings.machine import shipped_file; print(shipped_file(*sys.argv[1:]))"
)

CONFIG_TYPES = {".xml", ".json", ".yml", ".yaml", ".service", ".conf", ".cfg", ".res", ".toml"}
SHIPPED = sorted(
    path.relative_to(ROOT).as_posix()
    for directory, types in (
        ("config", CONFIG_TYPES),
        ("examples", {".ipynb", ".py", ".rb"}),
        ("plugins", {".py"}),
    )
    for path in (ROOT / directory).rglob("*")
    if path.suffix in types
)

#: Text of a page in place of a generated part.
GENERATED = "The site of the documentation has a table here."


@pytest.fixture(scope="module")
def installed(packages, tmp_path_factory):
    environment = Environment(tmp_path_factory.mktemp("installed"))
    environment.install(packages[1])
    return environment


class Running:
    """``stompring run`` of an environment, until it is ready."""

    def __init__(self, environment, cwd, *options, env=None):
        self._process = subprocess.Popen(
            [environment.bin / "stompring", "run", *options],
            cwd=cwd,
            env=environment.environ(PYTHONUNBUFFERED="1", **(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.ports = {}
        log = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            log.append(line)
            if found := re.search(r"listens on \S+:(\d+) \(acceptor (\S+)\)", line):
                self.ports[found[2]] = int(found[1])
            if "is ready" in line:
                break
        else:
            raise AssertionError("the broker has ended:\n" + "".join(log))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.send_signal(signal.SIGTERM)
        output, _ = self._process.communicate(timeout=PATIENCE)
        assert exception[0] is not None or self._process.returncode == 0, output


def on_free_ports(document):
    return re.sub(r"://127.0.0.1:[0-9]+", "://127.0.0.1:0", document)


@pytest.fixture
def wheel(packages):
    with zipfile.ZipFile(packages[1]) as archive:
        yield archive


def test_a_wheel_has_every_file_of_config_examples_and_plugins(wheel):
    assert len(SHIPPED) > 40
    for name in SHIPPED:
        assert wheel.read(f"stompring/shipped/{name}") == (ROOT / name).read_bytes(), name


def test_a_wheel_has_the_pages_for_users_as_html(wheel):
    """Every link between them leads to a page and its heading; the runbook has every alert."""
    prefix = "stompring/shipped/docs/"
    found = {
        name.removeprefix(prefix): html.fromstring(wheel.read(name))
        for name in wheel.namelist()
        if name.startswith(prefix)
    }
    docs = ROOT / "docs"
    pages = {path.relative_to(docs) for path in docs.rglob("*.md")}
    assert found.keys() == {str(path.with_suffix(".html")) for path in pages if path.parts[0] != "dev"}
    ids = {name: {*page.xpath("//@id")} for name, page in found.items()}
    wrong = []
    for name, page in found.items():
        for target in page.xpath("//main//a/@href"):
            path, _, anchor = target.partition("#")
            to = posixpath.normpath(posixpath.join(posixpath.dirname(name), f"{path}.html")) if path else name
            if ":" in target or to in ids and (not anchor or anchor in ids[to]):
                continue
            # an anchor may be in a generated part
            if to not in ids or GENERATED not in found[to].text_content():
                wrong.append((name, target))
    assert wrong == []
    alerts = re.findall(r"runbook: /docs/runbook#(\w+)", (ROOT / "config/prometheus-alerts.yml").read_text())
    assert len(alerts) > 30 and {*alerts} <= ids["runbook.html"]
    assert not any(page.xpath("//comment() | //main//img") for page in found.values())


def test_a_wheel_has_every_file_of_the_package(wheel):
    """But for generated ones and sources that only a compiled wheel needs."""
    names = wheel.namelist()
    for path in (ROOT / "stompring").rglob("*"):
        if path.is_file() and path.suffix not in {".pyc", ".md", ".c"} and "node_modules" not in path.parts:
            assert path.relative_to(ROOT).as_posix() in names


def test_failover_is_an_extra_and_nothing_of_it_is_a_dependency(wheel):
    (metadata,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    required = re.findall(r"^Requires-Dist: ([\w.-]+)(.*)$", wheel.read(metadata).decode(), re.M)
    engines = {name: condition for name, condition in required if name in ("nats-py", "nkeys", "psycopg")}
    assert len(engines) == 3 and all("extra ==" in condition for condition in engines.values())


def test_no_file_of_a_broker_that_ran_in_the_checkout_is_packaged(packages, wheel):
    with tarfile.open(packages[0]) as tar:
        names = [*tar.getnames(), *wheel.namelist()]
    assert [name for name in names if re.search(r"\.properties$|/data/|\.pyc$|node_modules", name)] == []


def test_an_sdist_has_what_builds_tests_and_documents_stompring(packages):
    with tarfile.open(packages[0]) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    expected = {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "setup.py", "setup.cfg", "pyproject.toml"}
    expected |= {"SECURITY.md", "Containerfile", "Containerfile.dockerignore", "compose.yaml"}
    expected |= {"docs/settings.md", "tests/conftest.py", "config/broker.xml", "plugins/stamp.py"}
    assert expected <= names


def shipped(environment, cwd, *parts):
    """Where an environment has a shipped file."""
    return Path(
        run([environment.bin / "python", "-c", PRINT_PATH, *parts], cwd, environment.environ()).strip()
    )


@pytest.mark.parametrize(
    "parts",
    [("config", "broker.xml"), ("plugins", "rate_limit.py"), ("schema", "schema.xsd")],
    ids="/".join,
)
def test_shipped_file_finds_files_in_an_installed_wheel(installed, tmp_path, parts):
    path = shipped(installed, tmp_path, *parts)
    assert path.is_relative_to(installed.packages) and path.is_file()


def test_an_editable_installation_uses_the_files_of_its_checkout(tmp_path):
    checkout = tmp_path / "checkout"
    copy_checkout(checkout)
    environment = Environment(tmp_path / "environment")
    environment.install("--editable", checkout)
    assert shipped(environment, tmp_path, "plugins", "stamp.py") == checkout / "plugins" / "stamp.py"
    assert not (checkout / "stompring" / "shipped").exists()


def test_every_configuration_without_secrets_is_valid_in_an_installed_wheel(installed, tmp_path):
    """Except tls.xml and security.xml, which need a certificate and users. policies.xml names every shipped plugin."""
    config = installed.packages / "stompring" / "shipped" / "config"
    files = [path for path in sorted(config.glob("*.xml")) if path.name not in ("tls.xml", "security.xml")]
    shown = run(
        [installed.bin / "stompring", "check-config", "--data", tmp_path, *files],
        tmp_path,
        installed.environ(),
    )
    assert [f"{path}: ok" in shown for path in files] == [True] * len(files)


def test_a_broker_xml_of_a_user_may_name_the_shipped_plugins(installed, tmp_path):
    document = """<configuration><core>
      <security-enabled>false</security-enabled>
      <broker-plugins><broker-plugin name="stamp"/></broker-plugins>
      <acceptors><acceptor name="stomp">tcp://127.0.0.1:0</acceptor></acceptors>
      <address-settings><address-setting match="#">
        <address-policy name="stamp"><property key="peer-header" value="sent-from"/></address-policy>
      </address-setting></address-settings>
    </core></configuration>"""
    (tmp_path / "broker.xml").write_text(document)
    with Running(installed, tmp_path, "--config", tmp_path / "broker.xml") as broker:
        client = StompClient(broker.ports["stomp"])
        client.connect()
        client.subscribe("orders")
        client.put("orders", "one")
        assert client.message("one")["sent-from"].startswith("127.0.0.1")
        client.close()


def test_run_without_a_configuration_starts_a_broker_with_its_console(packages, tmp_path):
    """The three commands of a new user, without the first one's network; the ports of the wheel's file are changed."""
    environment = Environment(tmp_path / "environment")
    environment.install(packages[1])
    config = environment.packages / "stompring" / "shipped" / "config" / "broker.xml"
    config.write_text(on_free_ports(config.read_text()))
    environ = environment.environ(HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path / "state"))
    with Running(environment, tmp_path, env=environ) as broker:
        url = f"stomp://127.0.0.1:{broker.ports['stomp']}"
        for words in (["send", "/queue/hello", "it works"], ["subscribe", "/queue/hello", "--count", "1"]):
            shown = run([environment.bin / "stompring", *words, "--broker", url], tmp_path, environ)
        assert "it works" in shown
        url = f"http://127.0.0.1:{broker.ports['http']}"
        for path in ("/", "/console/app/main.js", "/console/style.css", "/docs/", "/docs/runbook"):
            with urlopen(url + path, timeout=PATIENCE) as answer:
                assert answer.status == 200 and answer.read()
                assert "/docs" not in path or answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert (tmp_path / "state" / "stompring").is_dir()


def test_the_default_configuration_starts_in_an_instance(installed, tmp_path):
    """An instance has a directory for configuration, and its data beside it."""
    (tmp_path / "etc").mkdir()
    config = shipped(installed, tmp_path, "config", "broker.xml")
    (tmp_path / "etc" / "broker.xml").write_text(on_free_ports(config.read_text()))
    with Running(installed, tmp_path, "--config", "etc/broker.xml") as broker:
        assert broker.ports.keys() == {"stomp", "websocket", "http"}
    assert (tmp_path / "data" / "journal").is_dir()
