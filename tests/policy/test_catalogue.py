"""The catalogue of policies: name, path, class and docstring of each without running it; parameters of loaded ones."""

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from stompring.policy.load import (
    ENTRY_POINT_GROUP,
    PluginLoadError,
    PluginSources,
    Unreadable,
    catalogue,
    load_details,
    parse,
)

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path for path in (ROOT / "plugins").glob("*.py") if not path.name.startswith(("_", "test_")))

HEAD = "from stompring.policy import AddressPolicy, Bytes, Milliseconds, parameter\n"
ONE = HEAD + 'class One(AddressPolicy):\n    """One."""\n'


@pytest.fixture
def folder(tmp_path):
    """The directory for plugins, beside a broker.xml that is not needed."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    return folder


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def sources(folder):
    return PluginSources(str(folder.parent / "broker.xml"))


def listed(folder):
    """The modules of a folder that count."""
    found = [entry for entry in catalogue(sources(folder)) if entry.target is None and not entry.shipped]
    return {entry.name: entry for entry in found if entry.shadowed_by is None}


# ---- the class and its docstring


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_policies_are_listed_as_they_are_loaded(path, folder):
    write(folder, path.name, path.read_text())
    (entry,) = listed(folder).values()
    before = (entry.kind, entry.summary, entry.origin)
    assert entry.fault is None and entry.summary and entry.parameters is None
    load_details(entry, sources(folder).load)
    assert (entry.kind, entry.summary, entry.origin) == before
    assert entry.fault is None and entry.parameters is not None


@pytest.mark.parametrize(
    "text, kind, summary",
    [
        (ONE, "One", "One."),
        ("import stompring.policy as api\nclass Two(api.AddressPolicy):\n    x = 1\n", "Two", ""),
        ("from stompring.policy import AddressPolicy as Base\nclass Two(Base): ...\n", "Two", ""),
        (HEAD + "class _Base(AddressPolicy): ...\nclass Two(Other, _Base[int]): ...\n", "Two", ""),
        (
            '"""The module.\n\nMore."""\n' + HEAD + "class Silent(AddressPolicy): ...\n",
            "Silent",
            "The module.",
        ),
        (
            HEAD + 'class Two(AddressPolicy):\n    """\n    Two lines.\n    More.\n    """\n',
            "Two",
            "Two lines.",
        ),
        ('"""The module."""\nfrom absent import Base\nclass One(Base): ...\n', None, "The module."),
        ("class One(make()): ...\n", None, ""),
        ("", None, ""),
    ],
)
def test_class_and_docstring_of_a_module(folder, text, kind, summary):
    path = write(folder, "some_name.py", text)
    entry = listed(folder)["some-name"]
    assert (entry.path, entry.kind, entry.summary, entry.fault) == (path, kind, summary, None)
    assert entry.parameters is None


def test_parameters_of_a_loaded_policy(folder):
    text = '''
        from stompring.policy.load import Ring

        class Derived(Ring):
            """Derived."""
            size: Bytes = parameter("Size.")
            age: Milliseconds = parameter("Age.", 60 * 1000, least=1)
    '''
    write(folder, "derived.py", HEAD + dedent(text))
    entry = listed(folder)["derived"]
    assert (entry.kind, entry.parameters) == (None, None)
    load_details(entry, sources(folder).load)
    assert (entry.kind, entry.summary, entry.fault) == ("Derived", "Derived.", None)
    assert entry.parameters is not None
    assert [(one.key, one.takes, one.shown_default) for one in entry.parameters.values()] == [
        ("size", "bytes", "required"),
        ("age", "milliseconds, at least 1", "60000"),
    ]


def test_a_policy_that_cannot_be_loaded_has_the_reason(folder):
    write(folder, "some_name.py", ONE + "raise SystemExit(1)\n")
    entry = listed(folder)["some-name"]
    load_details(entry, sources(folder).load)
    assert entry.parameters is None and "some_name.py:4: SystemExit: 1" in (entry.fault or "")


# ---- what cannot be read


@pytest.mark.parametrize(
    "text, reason",
    [
        (b"class One(:\n", "broken.py:1: SyntaxError: invalid syntax"),
        (b"\n\nx = 'abc\n", "broken.py:3: SyntaxError: unterminated string"),
        (b"x = 1\0\n", "null byte"),
        (b"x = '\xff\xfe'\n", "SyntaxError: (unicode error)"),
        (b"# coding: no-such\n", "no-such"),
        (b"x = " + b"(" * 10_000, "broken.py"),
        (b"x = " + b"-" * 100_000 + b"1", "broken.py"),
        (b"x = " + b"1+" * 100_000 + b"1", "broken.py"),
        (b"x = 1" + b".a" * 100_000, "broken.py"),
        (ONE.encode() + b"class Two(One): ...\n", "defines 2 policies (One, Two)"),
        (b"#" * (5 * 1024 * 1024), "is longer than"),
    ],
    ids=lambda value: repr(value[:12]),
)
@pytest.mark.timeout(20)
def test_a_module_that_cannot_be_read_is_listed_with_the_reason(folder, text, reason):
    (folder / "broken.py").write_bytes(text)
    write(folder, "one.py", ONE)
    found = listed(folder)
    assert found["broken"].kind is None and reason in (found["broken"].fault or "")
    assert found["one"].fault is None


def test_path_that_is_not_a_file_is_listed_with_the_reason(folder):
    (folder / "directory.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "dangling.py").symlink_to(folder / "absent")
    assert {name: entry.fault for name, entry in listed(folder).items()} == {
        name: f"{folder / name}.py is not a file" for name in ("directory", "pipe", "dangling")
    }
    with pytest.raises(PluginLoadError, match="is not a file"):
        sources(folder).load("pipe")


@pytest.mark.timeout(20)
def test_a_large_module_is_listed(folder):
    deep = "".join(f"class _C{n}(_C{n - 1}): ...\n" for n in range(1, 30_000))
    write(folder, "deep.py", f"{HEAD}class _C0(AddressPolicy): ...\n{deep}class Last(_C29999): ...\n")
    assert listed(folder)["deep"].kind == "Last"


# ---- nothing runs


def test_nothing_runs(folder):
    mark = folder / "ran"
    write(folder, "evil.py", f"open({str(mark)!r}, 'w')\n{ONE}")
    assert listed(folder)["evil"].summary == "One."
    assert not mark.exists() and not (folder / "__pycache__").exists()


def install(tmp_path, monkeypatch, points, name="acme"):
    """A package with entry points, as pip leaves it; the directory in which it is."""
    site = tmp_path / f"site-{name}"
    write(site, f"{name}-2.3.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.3\n")
    write(site, f"{name}-2.3.dist-info/entry_points.txt", f"[{ENTRY_POINT_GROUP}]\n{points}\n")
    monkeypatch.syspath_prepend(site)
    return site


def packages(folder, *distributions):
    return [entry for entry in catalogue(sources(folder)) if entry.distribution in distributions]


def test_a_package_is_read_and_not_imported(folder, tmp_path, monkeypatch):
    site = install(tmp_path, monkeypatch, "slow_down = acme:SlowDown\ndeep = acme.inner.deep:Deep")
    fatal = "raise SystemExit('imported')\n"
    write(
        site,
        "acme/__init__.py",
        '"""Policies of Acme."""\n' + fatal + "from .policies import Slow as SlowDown\n",
    )
    write(site, "acme/inner/deep.py", fatal + ONE + 'class Deep(One):\n    """Is deep."""\n')
    deep, slow = packages(folder, "acme")
    assert (slow.name, slow.distribution, slow.version, slow.target) == (
        "slow-down",
        "acme",
        "2.3",
        "acme:SlowDown",
    )
    assert slow.path == site / "acme" / "__init__.py" and slow.fault is None
    assert slow.origin == "acme 2.3, acme:SlowDown"
    assert (slow.kind, slow.summary, slow.parameters) == ("SlowDown", "Policies of Acme.", None)
    assert (deep.path, deep.fault) == (site / "acme" / "inner" / "deep.py", None)
    assert (deep.kind, deep.summary, deep.parameters) == ("Deep", "Is deep.", None)
    assert not [name for name in sys.modules if name.partition(".")[0] == "acme"]


def test_a_loaded_policy_of_a_package_has_the_path_of_its_class(folder, tmp_path, monkeypatch):
    site = install(tmp_path, monkeypatch, "of_dcme = dcme:Passed", "dcme")
    write(site, "dcme/__init__.py", "from .policies import One as Passed\n")
    write(site, "dcme/policies.py", ONE + '    number: int = parameter("Number.", 3)\n')
    (entry,) = packages(folder, "dcme")
    load_details(entry, sources(folder).load)
    assert (entry.path, entry.fault) == (site / "dcme" / "policies.py", None)
    assert (entry.kind, entry.summary) == ("One", "One.")
    assert entry.parameters["number"].shown_default == "3"
    for name in [name for name in sys.modules if name.partition(".")[0] == "dcme"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(
    "point, reason",
    [
        ("acme.absent:One", "the source of acme.absent is not found"),
        ("absent_acme:One", "the source of absent_acme is not found"),
        ("acme.broken:One", "broken.py:1: SyntaxError"),
        ("acme", "is not of the form module:Class"),
        ("acme:One.two", "is not of the form module:Class"),
        ("!!!", "is not of the form module:Class"),
        ("sys:One", "the source of sys is not found"),
    ],
)
def test_a_package_that_cannot_be_read(folder, tmp_path, monkeypatch, point, reason):
    site = install(tmp_path, monkeypatch, f"bad = {point}\nworse = {point}")
    write(site, "acme/__init__.py", ONE)
    write(site, "acme/broken.py", "class (:")
    for entry in packages(folder, "acme"):
        assert entry.parameters is None and reason in (entry.fault or "")


def test_a_package_that_is_damaged_hides_no_other(folder, tmp_path, monkeypatch):
    write(install(tmp_path, monkeypatch, "one = acme:One"), "acme.py", ONE)
    install(tmp_path, monkeypatch, "no sense", "bcme")
    found = {entry.name: entry for entry in catalogue(sources(folder))}
    assert found["one"].fault is None
    assert "entry points cannot be read: " in (found["(package bcme)"].fault or "")
    assert found["(package bcme)"].origin == "an installed package"
    assert "one" in sources(folder).packages()


# ---- several of one name


def test_the_first_folder_counts_and_modules_count_before_packages(tmp_path, monkeypatch):
    beside, above = tmp_path / "config" / "plugins", tmp_path / "plugins"
    first = write(beside, "rate_limit.py", ONE)
    write(above, "rate_limit.py", ONE)
    write(above, "other.py", ONE)
    for name in ("_private", "test_rate_limit", "conftest"):
        write(above, f"{name}.py", "raise SystemExit\n")
    install(tmp_path, monkeypatch, "rate_limit = acme:One")
    assert sources(beside).load("rate-limit").__name__ == "One"
    entries = [entry for entry in catalogue(sources(beside)) if entry.name in ("rate-limit", "other")]
    assert [(entry.name, entry.origin) for entry in entries] == [
        ("other", f"{above / 'other.py'}, class One"),
        ("rate-limit", f"{first}, class One"),
        ("rate-limit", f"{above / 'rate_limit.py'}, class One"),
        ("rate-limit", "acme 2.3, acme:One"),
        ("rate-limit", "stompring, rate_limit.py, class RateLimit"),
    ]
    assert [entry.shadowed_by and entry.shadowed_by.path for entry in entries] == [
        None,
        None,
        first,
        first,
        first,
    ]


def test_of_two_packages_the_one_that_is_loaded_counts(folder, tmp_path, monkeypatch):
    for name in ("acme", "bcme"):
        write(install(tmp_path, monkeypatch, f"one = {name}:One", name), f"{name}.py", ONE)
    counting, other = packages(folder, "acme", "bcme")
    assert counting.shadowed_by is None and other.shadowed_by is counting
    assert counting.target == sources(folder).packages()["one"].value


def test_unreadable_is_an_error_with_the_path(folder):
    with pytest.raises(Unreadable, match=r"absent\.py is not a file"):
        parse(folder / "absent.py")
