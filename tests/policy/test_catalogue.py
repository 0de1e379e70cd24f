"""What is told of policies that are not loaded: the same as of those that are, and nothing of them runs."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from stompring.policy.address_policy import AddressPolicy
from stompring.policy.catalogue import Entry, ReadPolicy, Unreadable, catalogue, read_module
from stompring.policy.source import GROUP, Sources

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path for path in (ROOT / "plugins").glob("*.py") if not path.name.startswith(("_", "test_")))

HEAD = "from stompring.policy import AddressPolicy, Bytes, Milliseconds, parameter\n"
ONE = HEAD + 'class One(AddressPolicy):\n    """One."""\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory for plugins, beside a broker.xml that is not needed."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    return folder


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")
    return path


def sources(folder: Path) -> Sources:
    return Sources(str(folder.parent / "broker.xml"))


def listed(folder: Path) -> dict[str, Entry]:
    """The modules of a folder that count."""
    found = [entry for entry in catalogue(sources(folder)) if entry.target is None]
    return {entry.name: entry for entry in found if entry.shadowed_by is None}


def told(policy: ReadPolicy) -> list[tuple[object, ...]]:
    return [(one.key, one.kind, one.default, one.help, one.least, one.most) for one in policy.parameters]


def known(kind: type[AddressPolicy]) -> list[tuple[object, ...]]:
    """The same of a class that was loaded."""
    return [
        (one.key, one.kind, None if one.required else one.shown_default, one.help, one.least, one.most)
        for one in kind.parameters.values()
    ]


def check(path: Path) -> ReadPolicy:
    """A module that is read is told of as one that is loaded. No two tests may use the same name for different ones."""
    loaded = sources(path.parent).load(path.stem)
    read = read_module(path)
    assert told(read) == known(loaded)
    assert read.kind == loaded.__name__
    if loaded.__doc__:
        assert read.summary == loaded.__doc__.strip().splitlines()[0]
    return read


# ---- as if it were loaded


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_policies_that_are_shipped(path: Path) -> None:
    assert check(path).summary


EVERYTHING = '''
    """A policy with everything."""
    {future}
    import math
    import pathlib
    import typing as t
    from pathlib import Path
    from typing import Literal, Optional, Union

    import stompring.policy
    from stompring.policy import AddressPolicy, Bytes, parameter
    from stompring.policy.parameter import Milliseconds as Ms
    import stompring.policy as api

    KILO = 1024
    Mode = Literal["fast", "exact"]
    HELP = "A help " "in two parts."


    class Everything(AddressPolicy):
        """What it is for.

        And more.
        """

        AT_MOST = 7

        needed: str = parameter("A text.")
        text: str = parameter("A text.", "some 'text'")
        whole: int = parameter("A number.", -3, least=-10, most=10)
        sum: int = parameter("A sum.", (2 + 3) * 4 - 10 // 3 % 2 + 2**3 + (1 << 4))
        decimal: float = parameter("A share.", 0.5, least=0, most=1)
        big: float = parameter("Big.", 1e6, most=math.inf)
        quotient: float = parameter("Quotient.", 1 / 4)
        yes: bool = parameter("A switch.", True)
        no_thing: bool = parameter("A switch.", False)
        time: Ms = parameter("A time.", 60 * 1000, least=1)
        size: Bytes = parameter("A size.", Bytes(10 * KILO))
        other: api.Bytes = api.parameter("A size.", 10 * 1024, most=1024 * KILO)
        long: stompring.policy.Milliseconds = stompring.policy.parameter("Long.", Ms(5))
        file: Path = parameter("A file.", Path("some/file.json"))
        place: pathlib.Path = parameter("A place.")
        maybe_file: Path | None = parameter("A file.", None)
        choice: Literal["a", "b", "c"] = parameter("One of them.", "b")
        mode: Mode = parameter("A mode.", "fast")
        other_mode: t.Literal["x"] | None = parameter("A mode.", None)
        words: tuple[str, ...] = parameter("Words.", ("a", "b"))
        no_words: tuple[str, ...] | None = parameter("Words.", None)
        optional: Optional[int] = parameter("Perhaps.", None)
        union: Union[None, Bytes] = parameter("Perhaps.", None)
        first: None | int = parameter("Perhaps.", default=None)
        named: int = parameter(help=HELP, default=AT_MOST, least=1, most=AT_MOST)
        joined: int = parameter("a " + "b", 1)
        not_a_parameter: int = 5
        also_not = dict(a=1)
'''


def test_every_type(folder: Path) -> None:
    read = check(write(folder, "everything.py", EVERYTHING.format(future="")))
    assert read.summary == "What it is for."
    assert len(read.parameters) == 26
    takes = {one.key: one.takes for one in read.parameters}
    assert takes["whole"] == "whole number, from -10 to 10"
    assert takes["time"] == "milliseconds, at least 1"
    assert takes["other"] == "bytes, at most 1048576"
    assert takes["mode"] == "fast, exact"


def test_every_type_with_annotations_as_texts(folder: Path) -> None:
    text = EVERYTHING.format(future="from __future__ import annotations")
    check(write(folder, "everything_late.py", text))


def test_a_quoted_annotation(folder: Path) -> None:
    path = write(folder, "quoted.py", ONE + '    size: "Bytes | None" = parameter("A size.", None)\n')
    assert check(path).parameters[0].kind == "bytes"


def test_parameters_of_bases_come_first_and_may_be_changed(folder: Path) -> None:
    text = '''
        class _Timed(AddressPolicy):
            age: Milliseconds = parameter("Age.", 5)
            size: Bytes = parameter("Size.")

        class Counted:
            count: int = parameter("Count.", 1)

        class Last(_Timed, Counted):
            """The last."""
            own: int = parameter("Own.", 2)
            age: Milliseconds = parameter("Another age.", 10)
    '''
    read = check(write(folder, "based.py", HEAD + dedent(text)))
    assert [one.key for one in read.parameters] == ["count", "age", "size", "own"]


def test_a_policy_that_is_derived_from_a_built_in_one(folder: Path) -> None:
    text = "from stompring.policy import *\nfrom stompring.policy.built_in import Ring\n"
    text += 'class Derived(Ring):\n    """Derived."""\n    n: int = parameter("N.", 1)\n'
    assert check(write(folder, "derived.py", text)).kind == "Derived"


def test_what_a_try_and_an_if_import(folder: Path) -> None:
    text = '''
        from typing import TYPE_CHECKING
        try:
            from stompring.policy import AddressPolicy as Base
        except ImportError:
            Base = object
        if not TYPE_CHECKING:
            from stompring.policy import parameter

        class Tried(Base):
            """Tried."""
            n: int = parameter("N.", 1)
    '''
    assert check(write(folder, "tried.py", text)).parameters[0].default == "1"


def test_without_a_docstring_the_module_speaks(folder: Path) -> None:
    text = '"""The module.\n\nMore."""\n' + HEAD + "class Silent(AddressPolicy):\n    x = 1\n"
    assert read_module(write(folder, "silent.py", text)).summary == "The module."
    assert read_module(write(folder, "mute.py", HEAD + "class Mute(AddressPolicy): ...\n")).summary == ""


@pytest.mark.parametrize(
    "expression",
    [
        "compute()",
        "len('abc')",
        "LIMITS['a']",
        "9**9**9",
        "1 << 10**9",
        "'x' * 10**9",
        "A9",
        "CIRCLE",
        "1 / 0",
        "absent",
        "os.environ['HOME']",
        "[1,  2]",
        "(1, 2)",
        "0x" + "f" * 5000,
        "+".join("1" * 500),
    ],
)
def test_what_is_computed_is_shown_as_it_is_written(folder: Path, expression: str) -> None:
    doubling = "A0 = 'xxxxxxxxxxxxxxxx'\n" + "".join(f"A{n} = A{n - 1} + A{n - 1}\n" for n in range(1, 10))
    text = f"import os\n{doubling}CIRCLE = CIRCLE\nLIMITS = {{}}\n{ONE}"
    text += f'    text: str = parameter(f"A {{help}}", {expression}, least=compute())\n'
    (one,) = read_module(write(folder, "computed.py", text)).parameters
    assert one.default == " ".join(expression.split())
    assert one.help == 'f"A {help}"'
    assert (one.least, one.most) == (-math.inf, math.inf)


@pytest.mark.timeout(20)
def test_many_parameters_that_are_computed(folder: Path) -> None:
    many = "".join(
        f'    p{n}: int = parameter("P.", compute({n},\r\n        "ü"))\r\n' for n in range(20_000)
    )
    path = folder / "many.py"
    path.write_bytes(("# coding: latin-1\n" + ONE + many).encode("latin-1"))
    read = read_module(path)
    assert [one.default for one in read.parameters] == [f'compute({n}, "ü")' for n in range(20_000)]


def test_a_type_that_cannot_be_is_shown_as_it_is_written(folder: Path) -> None:
    text = ONE + '    a: dict[str, int] = parameter("A.", None)\n    b = parameter("B.", None)\n'
    text += '    c: int | str = parameter("C.", 1)\n    d: "int |" = parameter("D.", 1)\n'
    text += '    e: Literal["a"] = parameter("E.", 1)\n'
    read = read_module(write(folder, "wrong.py", text))
    kinds = [one.kind for one in read.parameters]
    assert kinds == ["dict[str, int]", "(has no annotation)", "int | str", '"int |"', 'Literal["a"]']


# ---- what cannot be read


@pytest.mark.parametrize(
    ("text", "reason"),
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
        (b"", "broken.py defines no AddressPolicy"),
        (b"class AddressPolicy: ...\nclass One(AddressPolicy): ...\n", "defines no AddressPolicy"),
        (b"class One(Two): ...\nclass Two(One): ...\n", "defines no AddressPolicy"),
        (b"import enum\nclass One(enum.Enum): ...\n", "defines no AddressPolicy"),
        (b"from absent import Base\nclass One(Base): ...\n", "what One is derived from is not found"),
        (b"class One(make()): ...\n", "what One is derived from is not found"),
        (ONE.encode() + b"class Two(One): ...\n", "defines 2 policies (One, Two)"),
        (b"#" * (5 * 1024 * 1024), "is longer than"),
    ],
    ids=lambda value: repr(value[:12]),
)
@pytest.mark.timeout(20)
def test_a_module_that_cannot_be_read_is_listed_with_the_reason(
    folder: Path, text: bytes, reason: str
) -> None:
    (folder / "broken.py").write_bytes(text)
    write(folder, "one.py", ONE)
    found = listed(folder)
    assert found["broken"].policy is None and reason in (found["broken"].fault or "")
    assert found["one"].fault is None


def test_what_is_no_file_is_listed_with_the_reason(folder: Path) -> None:
    (folder / "directory.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "dangling.py").symlink_to(folder / "absent")
    assert {name: entry.fault for name, entry in listed(folder).items()} == {
        name: f"{folder / name}.py is no file" for name in ("directory", "pipe", "dangling")
    }


def test_classes_derived_from_each_other_many_times(folder: Path) -> None:
    deep = "".join(f"class C{n}(C{n - 1}): ...\n" for n in range(1, 3000))
    write(folder, "deep.py", f"{HEAD}class C0: ...\n{deep}")
    wide = "".join(f"class C{n}(C{n - 1}, _C{n - 1}): ...\n_C{n} = C{n}\n" for n in range(1, 60))
    write(folder, "wide.py", f"class C0: ...\n_C0 = C0\n{wide}")
    backwards = "\n".join(reversed(deep.splitlines()))
    write(folder, "backwards.py", f"{HEAD}{backwards}\nclass C0: ...\n")
    found = listed(folder)
    assert found["deep"].fault == f"{folder / 'deep.py'} defines no AddressPolicy"
    assert found["wide"].fault == f"{folder / 'wide.py'} defines no AddressPolicy"
    assert found["backwards"].fault == f"{folder / 'backwards.py'} is too deep to be read"


# ---- nothing runs


def test_nothing_runs(folder: Path) -> None:
    mark = folder / "ran"
    write(folder, "evil.py", f"open({str(mark)!r}, 'w')\n{ONE}")
    assert listed(folder)["evil"].policy is not None
    assert not mark.exists() and not (folder / "__pycache__").exists()


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: str, name: str = "acme") -> Path:
    """A package with entry points, as pip leaves it; the directory in which it is."""
    site = tmp_path / f"site-{name}"
    write(site, f"{name}-2.3.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.3\n")
    write(site, f"{name}-2.3.dist-info/entry_points.txt", f"[{GROUP}]\n{points}\n")
    monkeypatch.syspath_prepend(site)
    return site


def packages(folder: Path, *distributions: str) -> list[Entry]:
    return [entry for entry in catalogue(sources(folder)) if entry.distribution in distributions]


def test_a_package_is_read_and_not_imported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install(tmp_path, monkeypatch, "slow_down = acme:SlowDown\ndeep = acme.inner.deep:Deep")
    fatal = "raise SystemExit('imported')\n"
    write(site, "acme/__init__.py", fatal + "from .policies import Slow as SlowDown\n")
    write(
        site,
        "acme/policies.py",
        fatal + "from . import base\nfrom .base import parameter, Time\n"
        'class Slow(base.Base):\n    """Slows down."""\n    pause: Time = parameter("Pause.", base.PAUSE)\n',
    )
    write(
        site,
        "acme/base.py",
        fatal
        + "from stompring.policy import Milliseconds as Time\n"
        + HEAD
        + 'PAUSE = 1000 * 2\nclass Base(AddressPolicy):\n    name: str = parameter("Name.")\n',
    )
    write(
        site,
        "acme/inner/deep.py",
        fatal + 'from ..policies import *\nclass Deep(Slow):\n    """Is deep."""\n',
    )
    deep, slow = packages(folder, "acme")
    assert (slow.name, slow.distribution, slow.version, slow.target) == (
        "slow-down",
        "acme",
        "2.3",
        "acme:SlowDown",
    )
    assert slow.path == site / "acme" / "policies.py" and slow.fault is None
    assert slow.where == "acme 2.3, acme:SlowDown"
    assert slow.policy is not None and slow.policy.kind == "Slow" and slow.policy.summary == "Slows down."
    expected = [("name", "text", None, "Name."), ("pause", "milliseconds", "2000", "Pause.")]
    assert [row[:4] for row in told(slow.policy)] == expected
    assert deep.fault is None and deep.policy is not None and told(deep.policy) == told(slow.policy)
    assert not [name for name in sys.modules if name.partition(".")[0] == "acme"]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ("acme.absent:One", "the source of acme.absent is not found"),
        ("absent_acme:One", "the source of absent_acme is not found"),
        ("acme:Absent", "has no class Absent"),
        ("acme:number", "has no class number"),
        ("acme:itself", "has no class itself"),
        ("acme:Plain", "Plain is no AddressPolicy"),
        ("acme.broken:One", "broken.py:1: SyntaxError"),
        ("acme", "is not of the form module:Class"),
        ("acme:One.two", "is not of the form module:Class"),
        ("!!!", "is not of the form module:Class"),
        ("sys:One", "the source of sys is not found"),
    ],
)
def test_a_package_that_cannot_be_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, reason: str
) -> None:
    site = install(tmp_path, monkeypatch, f"bad = {point}\nworse = {point}")
    write(site, "acme/__init__.py", ONE + "class Plain: ...\nnumber = 5\nfrom acme import itself\n")
    write(site, "acme/broken.py", "class (:")
    for entry in packages(folder, "acme"):
        assert entry.policy is None and reason in (entry.fault or "")


def test_a_package_that_is_damaged_hides_no_other(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(install(tmp_path, monkeypatch, "one = acme:One"), "acme.py", ONE)
    install(tmp_path, monkeypatch, "no sense", "bcme")
    found = {entry.name: entry for entry in catalogue(sources(folder))}
    assert found["one"].fault is None
    assert "its entry points cannot be read: " in (found["(package bcme)"].fault or "")
    assert found["(package bcme)"].where == "an installed package"


# ---- several of one name


def test_the_first_folder_counts_and_modules_count_before_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, above = tmp_path / "config" / "plugins", tmp_path / "plugins"
    first = write(beside, "rate_limit.py", ONE)
    write(above, "rate_limit.py", ONE)
    write(above, "other.py", ONE)
    for name in ("_private", "test_rate_limit", "conftest"):
        write(above, f"{name}.py", "raise SystemExit\n")
    install(tmp_path, monkeypatch, "rate_limit = acme:One")
    entries = [entry for entry in catalogue(sources(beside)) if entry.name in ("rate-limit", "other")]
    assert [(entry.name, entry.where) for entry in entries] == [
        ("other", f"{above / 'other.py'}, class One"),
        ("rate-limit", f"{first}, class One"),
        ("rate-limit", f"{above / 'rate_limit.py'}, class One"),
        ("rate-limit", "acme 2.3, acme:One"),
    ]
    assert [entry.shadowed_by and entry.shadowed_by.path for entry in entries] == [None, None, first, first]


def test_of_two_packages_the_one_that_is_loaded_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acme", "bcme"):
        write(install(tmp_path, monkeypatch, f"one = {name}:One", name), f"{name}.py", ONE)
    counting, other = packages(folder, "acme", "bcme")
    assert counting.shadowed_by is None and other.shadowed_by is counting
    assert counting.target == sources(folder).packages()["one"].value


def test_unreadable_is_an_error_with_the_path(folder: Path) -> None:
    with pytest.raises(Unreadable, match="absent.py is no file"):
        read_module(folder / "absent.py")
