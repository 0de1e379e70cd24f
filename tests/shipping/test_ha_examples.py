"""config/ha: the examples for brokers with a standby are accepted by the programs that read them."""

import os
import re
import shutil
import subprocess
import tomllib

import pytest
import yaml
from click.testing import CliRunner

from stompring.cli.main import main
from stompring.settings.broker_xml import read_broker_xml

from .. import nats_cluster
from ..broker_process import ROOT
from ..certificates import Authority
from ..tools import need

HA = ROOT / "config" / "ha"
KUBERNETES = sorted(HA.glob("*.yaml"))

#: Every file, so that none is added without a check.
CHECKED = {
    "broker.xml",
    "drbd-reactor.toml",
    "drbd.res",
    "haproxy.cfg",
    "kubernetes-replicated-log.yaml",
    "kubernetes-wait.yaml",
    "nats-server.conf",
    "stompring-ha.conf",
}


@pytest.fixture
def home(tmp_path):
    """The files beside broker.xml that it names."""
    shutil.copy(HA / "broker.xml", tmp_path)
    Authority(tmp_path, "ca").issue("node.pem")
    for name in ("users.properties", "roles.properties"):
        (tmp_path / name).write_text("")
    (tmp_path / "nats.password").write_text("secret\n")
    return tmp_path


def test_every_example_has_a_check():
    assert {path.name for path in HA.iterdir()} == CHECKED


def test_broker_xml_is_accepted_and_has_a_replicated_log_on_three_nodes(home):
    CliRunner().invoke(
        main, ["user", "add", "ada", "--role", "admins", "--password-stdin", "--config", str(home / "broker.xml")],
        input="secret-secret\n",
    )  # fmt: skip
    checked = CliRunner().invoke(main, ["check-config", "--data", str(home), str(home / "broker.xml")])
    assert checked.exit_code == 0, checked.output
    assert read_broker_xml(home / "broker.xml").replicated_log.url.count(",") == 2


def test_nats_server_accepts_its_configuration(home):
    program = nats_cluster.installed()
    if nats_cluster.server_version(program) < (2, 10):
        pytest.skip("nats-server 2.10 is not installed: sync_interval needs it")
    text = (HA / "nats-server.conf").read_text()
    assert re.search(r"^\s*sync_interval: always$", text, re.M)
    text = re.sub(r"/etc/nats/[\w.]+", str(home / "node.pem"), text)
    (home / "nats-server.conf").write_text(text)
    tested = subprocess.run(
        [program, "-c", str(home / "nats-server.conf"), "-t"],
        env={**os.environ, "NODE": "nats1", "STOMPRING_PASSWORD": "secret"},
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stderr


def test_haproxy_accepts_its_configuration():
    haproxy = need("haproxy")
    tested = subprocess.run([haproxy, "-c", "-f", str(HA / "haproxy.cfg")], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "WARNING" not in tested.stdout + tested.stderr


@pytest.mark.parametrize("with_wait", [False, True])
def test_systemd_understands_the_additions(tmp_path, with_wait):
    analyze = need("systemd-analyze")
    text = (HA / "stompring-ha.conf").read_text()
    if with_wait:
        text = re.sub(r"^#(ExecStart=)", r"\1", text, flags=re.M)
        assert text.count("ExecStart=") == 2
    unit = (ROOT / "config" / "stompring.service").read_text()
    for path, content in (("stompring.service", unit), ("stompring.service.d/ha.conf", text)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content.replace("/opt/stompring/bin/stompring", "/bin/true"))
    verified = subprocess.run(
        [analyze, "verify", str(tmp_path / "stompring.service")],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
    )
    about_it = [line for line in verified.stderr.splitlines() if "stompring" in line or "ha.conf" in line]
    assert about_it == [], verified.stderr


def test_drbd_accepts_its_configuration():
    drbdadm = need("drbdadm")
    dumped = subprocess.run(
        [drbdadm, "-c", str(HA / "drbd.res"), "dump"], capture_output=True, text=True, check=True
    )
    assert "on-no-quorum" in dumped.stdout and "protocol" in dumped.stdout


def test_drbd_reactor_starts_the_mount_before_the_broker():
    document = tomllib.loads((HA / "drbd-reactor.toml").read_text())
    (promoter,) = document["promoter"]
    assert list(promoter["resources"]) == ["stompring"]
    assert "resource stompring " in (HA / "drbd.res").read_text()
    start = promoter["resources"]["stompring"]["start"]
    assert start == ["var-lib-stompring.mount", "stompring.service"]


@pytest.fixture(params=KUBERNETES, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


@pytest.fixture
def stateful(documents):
    (found,) = [document for document in documents if document["kind"] == "StatefulSet"]
    return found


def test_kubernetes_routes_to_the_broker_that_is_ready(documents, stateful):
    services = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Service"}
    spec = stateful["spec"]
    pod = spec["template"]
    (broker,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == services["stompring"]["selector"]
    assert not services["stompring"].get("publishNotReadyAddresses")
    assert spec["serviceName"] in services
    assert broker["readinessProbe"]["httpGet"] == {"path": "/health/ready", "port": "http"}
    assert broker["livenessProbe"]["httpGet"] == {"path": "/health/live", "port": "http"}
    ports = {port["name"]: port["containerPort"] for port in broker["ports"]}
    assert {port["name"]: port["port"] for port in services["stompring"]["ports"]} == ports
    configuration = read_broker_xml(ROOT / "config" / "container" / "broker.xml")
    acceptors = [*configuration.stomp_acceptors, *configuration.http_acceptors]
    assert sorted(ports.values()) == sorted(acceptor.port for acceptor in acceptors)
    if spec["replicas"] > 1:  # a rolling update would wait for the standby to be ready
        assert spec["updateStrategy"] == {"type": "OnDelete"} and spec["podManagementPolicy"] == "Parallel"


def test_kubernetes_mounts_what_is_named_and_runs_our_commands(stateful, path):
    pod = stateful["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    (broker,) = pod["containers"]
    told = CliRunner().invoke(main, ["run", "--help"]).output
    options = [word for word in broker["args"] if word.startswith("--")]
    assert broker["args"][0] == "run" and all(f"{option} " in told for option in options)
    assert ("--wait" in options) == (path.stem == "kubernetes-wait")
    assert pod["securityContext"]["runAsUser"] == 61613  # of the image
    assert broker["securityContext"]["readOnlyRootFilesystem"] is True
