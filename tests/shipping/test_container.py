"""Containerfile and compose.yaml: the rules that keep an image safe, and that its commands work with this broker.

No container is built. The commands of the image (start, health check, stop, users) run here with its configuration, on
free ports.
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from stompring.settings.broker_xml import read_broker_xml

from ..broker_process import ROOT, BrokerProcess
from ..end_to_end.test_permissions import http
from ..end_to_end.test_security import login
from .test_alerts import needs_promtool, promtool

CONTAINERFILE = ROOT / "Containerfile"
CONFIG = ROOT / "config" / "container" / "broker.xml"
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OURS = ("users", "broker")


@dataclass(frozen=True)
class Instruction:
    name: str
    text: str

    @property
    def words(self):
        """The array of the exec form. Raises ValueError for the shell form."""
        return json.loads(self.text)


def instructions():
    text = re.sub(r"^\s*#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [Instruction(*line.split(maxsplit=1)) for line in lines if line.strip()]


def stages():
    found = []
    for instruction in instructions():
        if instruction.name == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def last(name):
    """An instruction of the final image. Later ones of the same name replace earlier ones."""
    return [instruction for instruction in stages()[-1] if instruction.name == name][-1]


# ---- Containerfile


def test_every_base_image_has_a_registry_and_a_version():
    images = [instruction.text.split()[0] for instruction in instructions() if instruction.name == "FROM"]
    assert images and len(set(images)) == 1  # the environment is built for the Python that runs it
    for image in images:
        assert re.fullmatch(r"docker\.io/[\w/-]+:[0-9]+\.[0-9]+[\w.-]*", image)


def test_the_image_runs_as_a_user_with_a_number_and_without_privileges():
    user, _, group = last("USER").text.partition(":")
    assert int(user) > 0 and int(group) > 0
    names = [instruction.name for instruction in stages()[-1]]
    assert names.index("USER") > max(at for at, name in enumerate(names) if name in ("RUN", "COPY"))
    (created,) = [each.text for each in stages()[-1] if each.name == "RUN"]
    assert (
        f"--uid {user} " in created
        and f"--gid {group} " in created
        and "--shell /usr/sbin/nologin" in created
    )


def test_commands_are_in_exec_form_so_that_signals_reach_the_broker():
    assert last("ENTRYPOINT").words == ["stompring"]
    assert last("CMD").words[0] == "run"
    assert last("STOPSIGNAL").text == "SIGTERM"
    assert json.loads(last("HEALTHCHECK").text.partition("CMD ")[2])[0] == "python"


def test_the_image_has_no_secrets_and_only_files_of_the_checkout():
    for instruction in instructions():
        if instruction.name in ("ENV", "LABEL"):
            assert not re.search("password|passcode|secret|token", instruction.text, re.IGNORECASE)
        if instruction.name == "COPY" and not instruction.text.startswith("--from"):
            *sources, _ = instruction.text.split()
            assert sources and [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.parametrize("name", [".containerignore", "Containerfile.dockerignore"])
def test_the_build_gets_what_is_copied_and_nothing_else(name):
    """Docker reads the one, Podman and Buildah the other."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    given = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source.partition("/")[0]
        for instruction in instructions()
        if instruction.name == "COPY" and not instruction.text.startswith("--from")
        for source in instruction.text.split()[:-1]
    }
    assert given == copied
    assert {"config/*.properties", "config/*.pem"} <= set(lines)


def test_ports_paths_and_volume_are_those_of_the_configuration():
    configuration = read_broker_xml(CONFIG)
    acceptors = [
        *configuration.stomp_acceptors,
        *configuration.http_acceptors,
    ]
    assert last("EXPOSE").text.split() == [str(acceptor.port) for acceptor in acceptors]
    (volume,) = last("VOLUME").words
    words = last("CMD").words
    assert words[words.index("--data") + 1].startswith(f"{volume}/")
    for file in (configuration.users_file, configuration.roles_file):
        assert file is not None and Path(file).parent == Path(volume)
    copied = [each.text.split() for each in stages()[-1] if each.name == "COPY"]
    assert ["config/container/broker.xml", words[words.index("--config") + 1]] in copied


def test_the_configuration_has_security_and_is_that_of_security_xml():
    configuration, model = read_broker_xml(CONFIG), read_broker_xml(ROOT / "config" / "security.xml")
    assert configuration.security_enabled
    assert {each.host for each in configuration.stomp_acceptors} == {"0.0.0.0"}
    for part in ("security_settings", "address_settings"):
        # without the lines of the file
        ours, theirs = (
            re.sub(r"line=[0-9]+", "", repr(getattr(each, part))) for each in (configuration, model)
        )
        assert ours == theirs


# ---- the commands of the image


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    """The broker of the image with the users of the service ``users``; volume and secret are elsewhere."""
    volume = tmp_path_factory.mktemp("volume")
    etc = tmp_path_factory.mktemp("etc")
    config = etc / "broker.xml"
    text = CONFIG.read_text().replace("/var/lib/stompring/", f"{volume}/")
    config.write_text(re.sub(r"0\.0\.0\.0:[0-9]+", "127.0.0.1:0", text))
    (etc / "password").write_text("pass word\n")
    (script,) = SERVICES["users"]["command"]
    script = script.replace("$$", "$").replace("/run/secrets/stompring_password", str(etc / "password"))
    script = script.replace("/etc/stompring/broker.xml", str(config))
    script = script.replace("stompring user", f"{sys.executable} -m stompring user")
    for _ in range(2):  # a second start replaces the passwords
        words = [*SERVICES["users"]["entrypoint"], script]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    words = last("CMD").words
    with BrokerProcess(config, volume / "data", options=words[words.index("--data") + 2 :]) as broker:
        yield broker


def test_the_service_users_adds_users_who_can_log_in(container):
    login(container, login="admin", passcode="pass word").expect("CONNECTED")
    assert http(container, "GET", "/metrics", "prometheus:pass word")[0] == 200
    assert http(container, "POST", "/api/v1/reload", "prometheus:pass word")[0] == 403


def test_the_health_check_succeeds_for_a_ready_broker_only(container):
    program = json.loads(last("HEALTHCHECK").text.partition("CMD ")[2])[-1]
    assert "127.0.0.1:8161/health/ready" in program
    ready = program.replace(":8161", f":{container.http_port}")
    assert subprocess.run([sys.executable, "-c", ready], check=False).returncode == 0
    absent = program.replace(":8161", ":1")
    assert (
        subprocess.run([sys.executable, "-c", absent], stderr=subprocess.DEVNULL, check=False).returncode != 0
    )


def test_sigterm_drains_before_the_clients_are_closed(container):
    client = login(container, login="admin", passcode="pass word")
    client.expect("CONNECTED")
    container.terminate()
    container.wait_for_log("drain")
    assert http(container, "GET", "/health/ready", "admin:pass word")[0] == 503
    client.put("/queue/drained", "of a client that goes on meanwhile")
    client.disconnect()
    container.stop()  # raises unless the broker ends with exit status 0


# ---- compose.yaml


def test_compose_yaml_is_valid_by_the_compose_specification():
    words = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "compose.yaml",
    ]
    checked = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_a_version_and_few_privileges(name):
    service = SERVICES[name]
    if name in OURS:
        assert service["build"] == {"context": ".", "dockerfile": "Containerfile"}
    else:
        assert re.fullmatch(r"docker\.io/[\w/-]+:v?[0-9]+\.[0-9]+\.[0-9]+", service["image"])
    assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only") or name == "grafana"
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:")
    assert "privileged" not in service


def test_every_mounted_file_exists():
    sources = [
        volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())
    ]
    assert {source for source in sources if source[0] != "."} == COMPOSE["volumes"].keys()
    assert [source for source in sources if source[0] == "." and not (ROOT / source).exists()] == []


def test_the_password_is_in_a_file_that_git_ignores():
    file = COMPOSE["secrets"]["stompring_password"]["file"]
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    ignored = subprocess.run(["git", "check-ignore", "-q", file], cwd=ROOT, check=False)
    assert ignored.returncode in (0, 128)  # 128: not a repository
    users = {name for name, service in SERVICES.items() if "stompring_password" in service.get("secrets", ())}
    assert users == {"users", "prometheus", "grafana"}


def test_prometheus_scrapes_the_broker_of_compose_yaml():
    def configuration(path):
        return yaml.safe_load((ROOT / "config" / path).read_text())

    own, model = configuration("container/prometheus.yml"), configuration("prometheus.yml")
    (scrape,) = own["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["broker:8161"]}]
    assert scrape["basic_auth"] == {
        "username": "prometheus",
        "password_file": "/run/secrets/stompring_password",
    }
    assert scrape["job_name"] == model["scrape_configs"][0]["job_name"]
    assert own["rule_files"] == model["rule_files"]
    mounted = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert {"/etc/prometheus/prometheus.yml", f"/etc/prometheus/{own['rule_files'][0]}"} <= mounted


def test_grafana_is_provisioned_with_the_dashboard_and_its_data_source():
    provisioning = ROOT / "config" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["type"] == "prometheus" and source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "stompring.yml").read_text())["providers"]
    mounted = {volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]}
    assert (
        f"{provider['options']['path']}/stompring.json" in mounted and "/etc/grafana/provisioning" in mounted
    )


@needs_promtool
@pytest.mark.parametrize("name", ["prometheus.yml", "container/prometheus.yml"])
def test_the_configuration_of_prometheus_is_valid(tmp_path, name):
    """With its rules and its password where it looks for them."""
    text = (ROOT / "config" / name).read_text()
    (tmp_path / "password").write_text("x")
    shutil.copy(ROOT / "config" / "prometheus-alerts.yml", tmp_path)
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/run/secrets/stompring_password", str(tmp_path / "password")))
    assert "is valid" in promtool("check", "config", file)
