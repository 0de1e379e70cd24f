"""Policies of installed packages: a clean environment, what pip makes of them, and a broker that is started there."""

import json
import shutil
import sys

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

from .. import broker_process
from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..packages import Environment, run
from ..packages import packages as packages
from ..stomp_client import StompClient
from .steps import say

#: A package as somebody else may write it: several modules, a class that its `__init__` passes on, and a second policy
#: that nobody names and that must never run.
ACME = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools>=69"]
build-backend = "setuptools.build_meta"

[project]
name = "acme-policies"
version = "2.3"
requires-python = ">=3.11"

[project.entry-points."stompring.address_policies"]
quiet = "acme_policies:Quiet"
dangerous = "acme_policies.dangerous:Dangerous"

[tool.setuptools.packages.find]
where = ["src"]
""",
    "src/acme_policies/__init__.py": "from .quiet import Quiet as Quiet\n",
    "src/acme_policies/quiet.py": '''
from stompring.policy import AddressPolicy, Offer, Refuse, Verdict, parameter

class Quiet(AddressPolicy):
    """Refuses messages that shout."""

    words: tuple[str, ...] = parameter("What must not be said.", ("HEY",))

    def admit(self, offer: Offer) -> Verdict | None:
        said = [word for word in self.words if word.encode() in offer.body]
        return Refuse(f"please do not say {said[0]}") if said else None
''',
    "src/acme_policies/dangerous.py": '''
from stompring.policy import AddressPolicy

class Dangerous(AddressPolicy):
    """Must not run."""

raise SystemExit("this was imported")
''',
}


class Policies:
    """An environment with stompring and two packages of policies."""

    def __init__(self, root):
        self.root = root
        self.installed = Environment(root / "venv")
        self.python = self.installed.bin / "python"

    def run(self, *words):
        """The output of stompring there."""
        return run([self.installed.bin / "stompring", *words], self.root, self.installed.environ())


@pytest.fixture(scope="module")
def environment(tmp_path_factory, packages):
    """The wheel of the run, and two packages that pip builds and installs. Nothing is downloaded."""
    environment = Policies(tmp_path_factory.mktemp("environment"))
    root = environment.root
    begun = CliRunner().invoke(main, ["plugins", "new", "size-limit", "--package", "--folder", str(root)])
    assert begun.exit_code == 0, begun.output
    for name, text in ACME.items():
        (root / "acme" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "acme" / name).write_text(text)
    environment.installed.install("--no-compile", packages[1], root / "stompring-size-limit", root / "acme")
    # the sources are gone: what counts is what was installed
    for folder in ("stompring-size-limit", "acme"):
        shutil.rmtree(root / folder)
    imported = "import stompring, stompring_size_limit; print(stompring.__file__)"
    where = run([environment.python, "-c", imported], root, environment.installed.environ())
    assert where.startswith(str(root / "venv")), where
    return environment


def document(largest, words):
    """A broker.xml with both policies for ``orders``."""
    plugins = f"""<broker-plugins>
<broker-plugin name="size-limit"><property key="largest" value="{largest}"/></broker-plugin>
<broker-plugin name="hush" policy="quiet"/>
</broker-plugins>"""
    uses = f"""<address-settings><address-setting match="orders">
<address-policy name="size-limit"/>
<address-policy name="hush"><property key="words" value="{words}"/></address-policy>
</address-setting>"""
    return broker_xml(core=plugins).replace("<address-settings>", uses)


@pytest.fixture
def broker(environment, tmp_path, monkeypatch):
    """A broker of the environment, with nothing of this checkout in reach."""
    config = tmp_path / "broker.xml"
    config.write_text(document("10", "HEY, HO"))
    monkeypatch.setattr(sys, "executable", str(environment.python))
    monkeypatch.setattr(broker_process, "ROOT", tmp_path)  # what it puts onto PYTHONPATH
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    with BrokerProcess(config, forked=False) as broker:
        yield broker


def accepted(broker, *bodies):
    dialogue = StompClient(broker.port)
    dialogue.connect()
    for body in bodies:
        dialogue.put("/queue/orders", body)
    dialogue.close()


def refused(broker, body, *words):
    dialogue = StompClient(broker.port)
    dialogue.connect()
    say(dialogue, "/queue/orders", body.encode())
    dialogue.error(*words)
    dialogue.close()


def test_installed_policies_act_and_a_reload_changes_them(broker):
    accepted(broker, "0123456789", "hey")
    refused(
        broker,
        "0123456789a",
        "message body has 11 bytes, the maximum is 10",
        "(policy size-limit of address orders)",
    )
    refused(broker, "HO", "please do not say HO (policy hush of address orders)")
    assert "configuration reloaded" in broker.reload(document("11", "hey"))
    accepted(broker, "0123456789a", "HO")
    refused(broker, "0123456789ab", "12 bytes, the maximum is 11")
    refused(broker, "hey", "please do not say hey")
    # a mistake changes nothing
    assert "cannot reload the configuration" in broker.reload(document("none", "HO"))
    accepted(broker, "0123456789a", "HO")
    refused(broker, "hey", "please do not say hey")
    dialogue = StompClient(broker.port)
    dialogue.connect()
    dialogue.subscribe("/queue/orders")
    dialogue.messages("0123456789", "hey", "0123456789a", "HO", "0123456789a", "HO")
    dialogue.nothing()
    dialogue.close()


def test_installed_policies_are_listed(environment, tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(document("10", "HEY"))
    shown = environment.run("plugins", "list", "--parameters", "--json", "--config", config)
    every = json.loads(shown)["policies"]
    policies = {each["name"]: each for each in every if each["distribution"] is not None}
    assert policies.keys() == {"size-limit", "quiet", "dangerous"}
    assert {each["fault"] for each in policies.values()} == {None}
    assert {
        name: (each["distribution"], each["version"], each["entryPoint"], each["summary"])
        for name, each in policies.items()
    } == {
        "size-limit": (
            "stompring-size-limit",
            "0.1.0",
            "stompring_size_limit:SizeLimit",
            "Refuses messages above a maximum size.",
        ),
        "quiet": ("acme-policies", "2.3", "acme_policies:Quiet", "Refuses messages that shout."),
        "dangerous": ("acme-policies", "2.3", "acme_policies.dangerous:Dangerous", "Must not run."),
    }
    assert [each["default"] for each in policies["size-limit"]["parameters"]] == ["262144"]
    assert [each["default"] for each in policies["quiet"]["parameters"]] == ["HEY"]
    assert [each["name"] for each in policies["quiet"]["plugins"]] == ["hush"]
    assert policies["quiet"]["path"].endswith("acme_policies/quiet.py")
    text = environment.run("plugins", "list", "--config", config)
    assert "from stompring-size-limit 0.1.0, stompring_size_limit:SizeLimit" in text


def test_the_installed_command_writes_policies(environment, tmp_path):
    """The templates are in the wheel."""
    environment.run("plugins", "new", "another", "--folder", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"another.py", "test_another.py"}
