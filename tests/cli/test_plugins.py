"""``stompring plugins list|new``: what is shown of policies, and that what is begun works as it is."""

import json
import os
import subprocess
import sys

import pytest

from stompring.policy.load import ENTRY_POINT_GROUP, PluginSources, load
from stompring.settings.broker_xml import read_broker_xml

from ..broker_process import ROOT
from .command import invoke

EVIL = "raise SystemExit('this was imported')\n"
LIMIT = '''from stompring.policy import AddressPolicy, Bytes, parameter

class Limit(AddressPolicy):
    """Limits something.

    In its own way.
    """

    largest: Bytes = parameter("The largest.", 10 * 1024, least=1)
    user: str = parameter("Who.")
'''

BROKER_XML = """<configuration><core>
<security-enabled>false</security-enabled>
<broker-plugins>
<broker-plugin name="limit"/>
<broker-plugin name="strict" policy="limit"><property key="user" value="ada"/></broker-plugin>
<broker-plugin name="idle" policy="limit"/>
<broker-plugin name="gone" policy="limmit"/>
</broker-plugins>
<address-settings>
<address-setting match="a.#">
<address-policy name="limit"/>
<address-policy name="strict" enabled="false"/>
</address-setting>
<address-setting match="b">
<address-full-policy>strict</address-full-policy>
<address-policy name="gone"/>
</address-setting>
</address-settings>
</core></configuration>
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def config(here):
    """A broker.xml at the default place, and policies."""
    config = here / "config" / "broker.xml"
    (config.parent / "plugins").mkdir(parents=True)
    config.write_text(BROKER_XML)
    (config.parent / "plugins" / "limit.py").write_text(EVIL + LIMIT)
    (config.parent / "plugins" / "broken.py").write_text("class (:\n")
    (here / "plugins").mkdir()
    (here / "plugins" / "limit.py").write_text(EVIL + LIMIT)
    return config


@pytest.fixture
def installed(here, monkeypatch):
    """A package with a policy, as pip leaves it."""
    information = here / "site" / "acme_policies-2.3.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-policies\nVersion: 2.3\n")
    (information / "entry_points.txt").write_text(
        f"[{ENTRY_POINT_GROUP}]\nof_acme = acme_policies:Limit\nlimit = acme:No\n"
    )
    (here / "site" / "acme_policies.py").write_text(EVIL + LIMIT)
    monkeypatch.syspath_prepend(here / "site")


def plugins(line, *others, **more):
    return invoke(f"plugins {line}", *others, **more)


def shown(line=""):
    found = json.loads(plugins(f"list --json {line}").stdout)
    found["shipped"] = [each for each in found["policies"] if each["shipped"]]
    found["policies"] = [each for each in found["policies"] if not each["shipped"]]
    return found


# ---- list


def paragraphs(text):
    return text.rstrip("\n").split("\n\n")


def test_list(config, installed):
    result = plugins("list")
    assert result.stderr == ""
    beside, above = config.parent / "plugins", config.parent.parent / "plugins"
    summary = "Limits something.\n  from {}"
    own = [each for each in paragraphs(result.stdout) if "\n  from stompring, " not in each]
    assert [each for each in own if "acme" not in each or "of-acme" in each] == [
        f"broken\n  from {beside}/broken.py\n"
        f"  error: {beside}/broken.py:1: SyntaxError: invalid syntax\n"
        "  not named in config/broker.xml",
        f"limit: {summary.format(f'{beside}/limit.py, class Limit')}\n"
        "  config/broker.xml:4: broker-plugin 'limit'\n"
        "    line 11: used by address-setting 'a.#'\n"
        "  config/broker.xml:5: broker-plugin 'strict'\n"
        "    line 12: used by address-setting 'a.#', disabled\n"
        "    line 14: used as address-full-policy by address-setting 'b'\n"
        "  config/broker.xml:6: broker-plugin 'idle'\n"
        "    not used by any address-setting",
        f"limit: {summary.format(f'{above}/limit.py, class Limit')}\n"
        f"  not used: {beside}/limit.py, class Limit has the same name and comes first",
        f"of-acme: {summary.format('acme-policies 2.3, acme_policies:Limit')}\n  not named in config/broker.xml",
        "config/broker.xml:7: broker-plugin 'gone': policy 'limmit' not found; did you mean 'limit'?\n"
        "    line 16: used by address-setting 'b'",
        f"searched {beside} and {above}, and installed packages",
    ]
    assert (
        "limit\n  from acme-policies 2.3, acme:No\n  error: the source of acme is not found\n"
        f"  not used: {beside}/limit.py, class Limit has the same name and comes first\n" in result.stdout
    )


def test_list_with_parameters_loads_what_broker_xml_names(config, installed):
    beside = config.parent / "plugins"
    (beside / "limit.py").write_text(LIMIT)  # the one that counts; all others would end the command
    result = plugins("list --parameters")
    assert result.stderr == ""
    (limit,) = [each for each in paragraphs(result.stdout) if "broker-plugin 'strict'" in each]
    assert limit.splitlines()[:5] == [
        "limit: Limits something.",
        f"  from {beside}/limit.py, class Limit",
        "    largest  bytes, at least 1  10240     The largest.",
        "    user     text               required  Who.",
        "  config/broker.xml:4: broker-plugin 'limit'",
    ]
    assert result.stdout.count("The largest.") == 1


def test_list_with_parameters_shows_why_a_policy_cannot_be_loaded(config):
    result = plugins("list --parameters")
    path = config.parent / "plugins" / "limit.py"
    assert f"  error: {path}:1: SystemExit: this was imported\n" in result.stdout


def test_list_for_machines(config, installed):
    found = shown(f"--config {config}")
    beside, above = config.parent / "plugins", config.parent.parent / "plugins"
    assert found.keys() == {"config", "folders", "policies", "missing", "shipped"}
    assert [each["name"] for each in found["shipped"]] == sorted(
        path.stem.replace("_", "-") for path in (ROOT / "plugins").glob("*.py")
    )
    assert found["config"] == str(config)
    assert found["folders"] == [str(beside), str(above)]
    broken, limit, hidden, also_hidden, acme = found["policies"]
    assert limit == {
        "name": "limit",
        "path": str(beside / "limit.py"),
        "shipped": False,
        "distribution": None,
        "version": None,
        "entryPoint": None,
        "class": "Limit",
        "summary": "Limits something.",
        "parameters": None,
        "fault": None,
        "shadowedBy": None,
        "plugins": [
            {
                "name": "limit",
                "policy": "limit",
                "line": 4,
                "uses": [{"match": "a.#", "line": 11, "full": False, "enabled": True}],
            },
            {
                "name": "strict",
                "policy": "limit",
                "line": 5,
                "uses": [
                    {"match": "a.#", "line": 12, "full": False, "enabled": False},
                    {"match": "b", "line": 14, "full": True, "enabled": True},
                ],
            },
            {"name": "idle", "policy": "limit", "line": 6, "uses": []},
        ],
    }
    assert broken["class"] is broken["parameters"] is None and "SyntaxError" in broken["fault"]
    assert [each["plugins"] for each in (broken, hidden, also_hidden, acme)] == [[]] * 4
    assert hidden["shadowedBy"] == also_hidden["shadowedBy"] == f"{beside}/limit.py, class Limit"
    assert (acme["distribution"], acme["version"]) == ("acme-policies", "2.3")
    assert acme["entryPoint"] == "acme_policies:Limit" and acme["parameters"] is None
    uses = [{"match": "b", "line": 16, "full": False, "enabled": True}]
    assert found["missing"] == [{"name": "gone", "policy": "limmit", "line": 7, "uses": uses}]


def test_list_for_machines_with_parameters(config, installed):
    without = shown(f"--config {config}")["policies"]
    (config.parent / "plugins" / "limit.py").write_text(LIMIT)
    broken, limit, hidden, also_hidden, acme = shown(f"--config {config} --parameters")["policies"]
    assert [broken, hidden, also_hidden, acme] == [without[0], *without[2:]]
    assert limit == without[1] | {
        "parameters": [
            {
                "key": "largest",
                "takes": "bytes",
                "least": 1,
                "most": None,
                "required": False,
                "default": "10240",
                "help": "The largest.",
            },
            {
                "key": "user",
                "takes": "text",
                "least": None,
                "most": None,
                "required": True,
                "default": None,
                "help": "Who.",
            },
        ],
    }


def test_without_a_broker_xml_packages_are_listed(here, installed):
    result = plugins("list")
    assert f"no config/broker.xml or etc/broker.xml in the directory {here}: " in result.stderr
    assert "--config FILE" in result.stderr
    assert "of-acme: Limits something.\n  from acme-policies 2.3, acme_policies:Limit\n" in result.stdout
    assert "named in" not in result.stdout
    assert f"no directory plugins in {here / 'config'} or {here}; searched" in result.stdout
    result = plugins("list --json")
    found = json.loads(result.stdout)
    assert found["config"] is None and found["folders"] == found["missing"] == []


def test_without_anything_the_shipped_policies_are_listed(here):
    assert "  from stompring, rate_limit.py, class RateLimit\n" in plugins("list").stdout


def test_a_broker_xml_that_is_named_must_be_right(here):
    result = plugins("list --config absent.xml", code=1)
    assert result.stdout == ""
    assert result.stderr == "Error: absent.xml: cannot be read: No such file or directory\n"
    (here / "bad.xml").write_text("<configuration>\n<kore/></configuration>")
    assert "bad.xml:2: " in plugins("list --config bad.xml", code=1).stderr


def test_other_commands_do_not_import_policies():
    script = (
        "import sys, stompring.cli.main; print([n for n in sys.modules if n.startswith('stompring.policy')])"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


# ---- new


def run(*arguments):
    """A command with this Python, which must do well."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": "", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def policy_xml(output):
    """What the command says is to be written into broker.xml."""
    lines = output.splitlines()
    start = lines.index("  <broker-plugins>")
    return "\n".join(lines[start : lines.index("  </address-settings>") + 1])


def test_new(here):
    config = here / "config" / "broker.xml"
    config.parent.mkdir()
    config.write_text("<configuration><core/></configuration>")
    result = plugins("new size-limit")
    assert result.stderr == "", result.output
    folder = config.parent / "plugins"
    assert {path.name for path in folder.iterdir()} == {"size_limit.py", "test_size_limit.py"}
    assert result.stdout.startswith("wrote config/plugins/size_limit.py\n")
    assert "\n  python -m pytest config/plugins/test_size_limit.py\n" in result.stdout
    run("-m", "pytest", "config/plugins")
    # what it says is what works
    config.write_text(f"<configuration><core>{policy_xml(result.stdout)}</core></configuration>")
    assert load(read_broker_xml(config), PluginSources(str(config)))
    (entry,) = [each for each in shown()["policies"] if each["name"] == "size-limit"]
    assert entry["class"] == "SizeLimit" and entry["plugins"][0]["uses"][0]["match"] == "orders.#"
    # and nothing is lost
    for path in folder.glob("*.py"):
        path.write_text("mine")
    again = plugins("new size-limit", code=1)
    assert again.stdout == ""
    assert "config/plugins/size_limit.py exists already and is not overwritten" in again.stderr
    assert {path.read_text() for path in folder.glob("*.py")} == {"mine"}


@pytest.mark.parametrize("package", [(), ("--package",)])
def test_new_as_json(here, package):
    result = plugins(f"new size-limit --folder {here} --json", *package)
    assert result.stderr == "", result.output
    found = json.loads(result.stdout)
    files = sorted(str(path) for path in here.rglob("*") if path.is_file())
    assert sorted(found["files"]) == files and found["name"] == "size-limit"
    assert "<broker-plugins>" in found["xml"] and found["test"].startswith("python -m pytest ")
    assert (found["install"] is None) is not bool(package)


def test_new_does_not_write_one_of_two(here):
    (here / "test_mine.py").write_text("mine")
    assert "test_mine.py exists already" in plugins(f"new mine --folder {here}", code=1).stderr
    assert [path.name for path in here.iterdir()] == ["test_mine.py"]


def test_new_writes_to_the_existing_plugin_directory(here):
    (here / "conf").mkdir()
    (here / "plugins").mkdir()
    (here / "conf" / "broker.xml").write_text("<configuration><core/></configuration>")
    plugins("new mine --config conf/broker.xml")
    assert (here / "plugins" / "mine.py").exists()
    assert "--config FILE" in plugins("new mine", code=1).stderr


def test_new_in_a_folder(here):
    result = plugins("new refuse --folder some/where")
    assert "class RefusePolicy(AddressPolicy):" in (here / "some" / "where" / "refuse.py").read_text()
    assert "The broker searches the directory 'plugins' beside broker.xml" in result.stdout
    plugins("new of_none --folder some/where")
    plugins("new none --folder some/where")
    run("-m", "pytest", "some/where")


@pytest.mark.parametrize(
    "name, reason",
    [
        ("9lives", "must consist of letters"),
        ("a.b", "must consist of letters"),
        ("../up", "must consist of letters"),
        ("", "must consist of letters"),
        ("größe", "must consist of letters"),
        ("class", "a keyword of Python"),
        ("None", "a keyword of Python"),
        ("drop", "DROP is a built-in policy"),
        ("PAGE", "PAGE is a built-in policy"),
        ("Fail", "FAIL is a built-in policy"),
        ("block", "BLOCK is a built-in policy"),
        ("test-this", "are reserved for tests"),
        ("conftest", "are reserved for tests"),
    ],
)
@pytest.mark.parametrize("package", [(), ("--package",)], ids=["module", "package"])
def test_names_that_cannot_be(here, name, reason, package):
    assert reason in plugins(f"new --folder {here}", *package, "--", name, code=2).stderr
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "name, reason",
    [("json", "of the standard library"), ("stompring", "a module stompring exists already")],
)
def test_names_of_modules_that_are_there(here, name, reason):
    assert reason in plugins("new", name, "--folder", here, code=1).stderr
    assert list(here.iterdir()) == []


def test_a_folder_that_cannot_be_written(here):
    (here / "file").write_text("")
    assert "cannot be written: Not a directory" in plugins("new mine --folder file/plugins", code=1).stderr
    assert "File name too long" in plugins("new", "a" * 300, "--folder", here, code=1).stderr


def test_new_package(here):
    result = plugins("new size_limit --package")
    assert result.stderr == "", result.output
    project = here / "stompring-size-limit"
    assert {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()} == {
        "README.md",
        "pyproject.toml",
        "stompring_size_limit/__init__.py",
        "stompring_size_limit/py.typed",
        "tests/test_size_limit.py",
    }
    assert '<broker-plugin name="size_limit">' in policy_xml(result.stdout)
    # not a bare name, which pip would look for in its index
    assert "\n  python -m pip install ./stompring-size-limit\n" in result.stdout
    assert "\n  python -m pytest stompring-size-limit\n" in result.stdout
    run("-m", "pytest", "stompring-size-limit")
    assert "stompring-size-limit exists already" in plugins("new size-limit --package", code=1).stderr
    elsewhere = plugins(f"new json --package --folder {here}/projects")
    assert f"\n  python -m pip install {here}/projects/stompring-json\n" in elsewhere.stdout
