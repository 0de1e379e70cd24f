"""From broker.xml to classes: where they are found, what is loaded, and what is wrong, by file and line."""

import importlib.metadata
import os

import pytest

from stompring.errors import ConfigurationError
from stompring.policy import AddressPolicy
from stompring.policy.load import ENTRY_POINT_GROUP, PluginLoadError, PluginSources, load
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.model import PolicyUse

GOOD = '''
"""A policy."""
from stompring.policy import AddressPolicy, parameter


class Good(AddressPolicy):
    """Does nothing."""

    number: int = parameter("A number.", 1, least=0)
    must: str = parameter("A text.")

    def check(self):
        if self.must == "never":
            raise ValueError("must is 'never', which is not meant")
        if self.must == "crash":
            raise KeyError("oh")
'''


@pytest.fixture
def plugin(tmp_path):
    """Writes a module of the folder ``plugins``."""

    def write(name, code):
        path = tmp_path / "plugins" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
        return path

    return write


@pytest.fixture
def xml(tmp_path):
    """Writes broker.xml, of plugins and of settings, each line of them a line of the file, the first the second."""

    def write(plugins, settings=""):
        path = tmp_path / "broker.xml"
        path.write_text(
            f"<configuration><core><broker-plugins>\n{plugins}\n</broker-plugins>\n"
            f"<address-settings>\n{settings}\n</address-settings></core></configuration>"
        )
        return read_broker_xml(path)

    return write


def loaded(configuration):
    return load(configuration, PluginSources(configuration.file))


def faults(configuration):
    """What is wrong, each as LINE: TEXT."""
    with pytest.raises(ConfigurationError) as caught:
        loaded(configuration)
    file = configuration.file or ""
    lines = str(caught.value).split("\n")
    assert all(line.startswith(f"{file}:") for line in lines), lines
    return [line.removeprefix(f"{file}:") for line in lines]


USE = '<address-setting match="a"><address-policy name="good">{}</address-policy></address-setting>'
MUST = '<property key="must" value="x"/>'


def test_a_module_beside_the_file(plugin, xml):
    plugin("good", GOOD)
    configuration = xml(f'<broker-plugin name="good">{MUST}</broker-plugin>', USE.format(""))
    (use,) = configuration.address_settings[0].values["address_policy"]
    selected = loaded(configuration).selected(use)
    policy = selected.make()
    assert selected.name == "good" and type(policy).__name__ == "Good"
    assert vars(policy) == {"must": "x", "number": 1}


def test_a_module_beside_the_folder_of_the_file(tmp_path, plugin):
    plugin("good_one", GOOD)
    (tmp_path / "config").mkdir()
    sources = PluginSources(str(tmp_path / "config" / "broker.xml"))
    assert sources.load("good-one").__name__ == "Good"
    assert sources.load("good_one").__name__ == "Good"


def test_properties_of_the_use_go_before_those_of_the_plugin(plugin, xml):
    plugin("good", GOOD)
    configuration = xml(
        f'<broker-plugin name="mine" policy="good">{MUST}<property key="number" value="2"/></broker-plugin>',
        '<address-setting match="a"><address-policy name="mine">'
        '<property key="number" value="3"/></address-policy></address-setting>'
        '<address-setting match="b"><address-full-policy>mine</address-full-policy></address-setting>',
    )
    plugins = loaded(configuration)
    uses = [entry.values.get("address_policy") for entry in configuration.address_settings]
    assert plugins.selected(uses[0][0]).values == {"number": 3, "must": "x"}
    assert plugins.selected(PolicyUse("mine")).values == {"number": 2, "must": "x"}


def test_nothing_is_imported_that_is_not_named(tmp_path, plugin, xml):
    mark = tmp_path / "mark"
    plugin("other", f"open({str(mark)!r}, 'w')")
    plugin("good", GOOD)
    loaded(xml(f'<broker-plugin name="good">{MUST}</broker-plugin>'))
    assert not mark.exists()
    faults(xml('<broker-plugin name="other"/>'))
    assert mark.exists()


@pytest.mark.parametrize(
    "code, fault",
    [
        ("class Nothing:\n    pass", "defines no AddressPolicy"),
        ("\n\n1 / 0", "bad.py:3: ZeroDivisionError: division by zero"),
        ("x = (", "bad.py:1: SyntaxError: '(' was never closed"),
        (
            "import nowhere_to_be_found",
            "bad.py:1: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        ("raise SystemExit(3)", "bad.py:1: SystemExit: 3"),
        (
            "from stompring.policy import *\nclass A(AddressPolicy): ...\nclass B(AddressPolicy): ...",
            "bad.py defines 2 policies (A, B); put each into a module of its own",
        ),
        (
            "from stompring.policy import *\nclass A(AddressPolicy):\n    x: list = parameter('x')",
            "bad.py:2: TypeError: A.x: a parameter cannot be of type <class 'list'>",
        ),
        ("\0", "bad.py:1: "),
        (b"\xff\xfe".decode("latin-1") + "=", "bad.py:1: "),
    ],
)
def test_a_module_that_cannot_be_loaded(code, fault, plugin, xml):
    plugin("bad", code)
    plugin("good", GOOD)
    plugins = f'<broker-plugin name="good">{MUST}</broker-plugin>\n<broker-plugin name="bad"/>'
    (found,) = faults(xml(plugins))
    assert found.startswith("3: broker-plugin 'bad': ") and fault in found, found


def test_unknown_policy_is_an_error_with_a_suggestion(plugin, xml):
    plugin("good", GOOD)
    (found,) = faults(xml('<broker-plugin name="goood"/>'))
    assert found.startswith("2: broker-plugin 'goood': policy 'goood' not found: no goood.py in ")
    assert ENTRY_POINT_GROUP in found and found.endswith("did you mean 'good'?")


@pytest.mark.parametrize(
    "properties, line, fault",
    [
        ("", 5, "policy 'good': parameter 'must' is required"),
        (
            MUST + '\n<property key="nummer" value="1"/>',
            6,
            "policy 'good' has no parameter 'nummer'; did you mean 'number'?",
        ),
        (
            MUST + '\n<property key="number" value="x"/>',
            6,
            "policy 'good': number is 'x': must be a whole number",
        ),
        (
            MUST + '\n<property key="number" value="-1"/>',
            6,
            "policy 'good': number is '-1': must be at least 0",
        ),
        ('<property key="must" value="never"/>', 5, "policy 'good': must is 'never', which is not meant"),
        ('<property key="must" value="crash"/>', 5, "policy 'good': check failed: KeyError: 'oh'"),
    ],
)
def test_parameters_that_cannot_be(properties, line, fault, plugin, xml):
    plugin("good", GOOD)
    assert faults(xml('<broker-plugin name="good"/>', USE.format(properties))) == [f"{line}: {fault}"]


def test_parameters_of_an_unused_plugin_are_checked(plugin, xml):
    plugin("good", GOOD)
    assert loaded(xml('<broker-plugin name="good"/>')), "what it lacks may be given where it is used"
    wrong = '<broker-plugin name="good">\n<property key="number" value="x"/></broker-plugin>'
    assert faults(xml(wrong)) == ["3: broker-plugin 'good': number is 'x': must be a whole number"]


def test_all_errors_are_reported_together(plugin, xml):
    plugin("good", GOOD)
    found = faults(xml('<broker-plugin name="gone"/>\n<broker-plugin name="good"/>', USE.format("")))
    assert [fault.partition(":")[0] for fault in found] == ["2", "6"]


def test_a_module_is_executed_again_when_it_has_changed(plugin):
    path = plugin("good", GOOD)
    sources = PluginSources(str(path.parent.parent / "broker.xml"))
    first = sources.load("good")
    assert sources.load("good") is first
    was = path.stat()
    path.write_text(GOOD.replace("Does nothing", "Does something"))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    second = sources.load("good")
    assert second is not first and second.__doc__ == "Does something."


def test_failed_load_leaves_the_former_policies(plugin):
    path = plugin("good", GOOD)
    sources = PluginSources(str(path.parent.parent / "broker.xml"))
    first = sources.load("good")
    path.write_text("x = (")
    with pytest.raises(PluginLoadError):
        sources.load("good")
    path.write_text(GOOD)
    assert sources.load("good") is first


class Installed(AddressPolicy):
    """As of a package."""


class FakeDistribution:
    name, version = "other-policies", "1.2"


def offers(monkeypatch, **points):
    made = []
    for name, value in points.items():
        point = importlib.metadata.EntryPoint(name, value, ENTRY_POINT_GROUP)
        vars(point).update(dist=FakeDistribution())
        made.append(point)
    monkeypatch.setattr("stompring.policy.load.entry_points", lambda: iter(made))


def test_an_entry_point(monkeypatch, tmp_path):
    offers(monkeypatch, in_stalled=f"{__name__}:Installed")
    assert PluginSources(str(tmp_path / "broker.xml")).load("in-stalled") is Installed


def test_a_class_with_two_names_is_one_policy(plugin):
    path = plugin("good", GOOD + "\n\nAlias = Good\n")
    assert PluginSources(str(path.parent.parent / "broker.xml")).load("good").__name__ == "Good"


@pytest.mark.parametrize(
    "value, fault",
    [
        (
            "nowhere_to_be_found:X",
            "cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        (f"{__name__}:Missing", "cannot be imported: AttributeError"),
        (f"{__name__}:offers", "not an AddressPolicy"),
        (f"{__name__}:FakeDistribution", "not an AddressPolicy"),
    ],
)
def test_an_entry_point_that_leads_nowhere(value, fault, monkeypatch, tmp_path):
    offers(monkeypatch, other=value)
    with pytest.raises(PluginLoadError) as caught:
        PluginSources(str(tmp_path / "broker.xml")).load("other")
    assert str(caught.value).startswith(f"other = {value} of other-policies 1.2") and fault in str(
        caught.value
    )
