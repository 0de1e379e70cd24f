"""``stompring plugins new``: a policy to begin with, and its test, from templates."""

from __future__ import annotations

import keyword
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Template

import click

from stompring.cli import config_option
from stompring.settings.model import FullPolicy
from stompring.settings.value_types import plugin_name

TEMPLATES = Path(__file__).with_name("templates")


def _name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    module = name.replace("-", "_")
    try:
        plugin_name(name)
    except ValueError as error:
        raise click.BadParameter(f"'{name}' {error}") from None
    if name.upper() in list(FullPolicy):
        raise click.BadParameter(f"{name.upper()} is built in; give it another name")
    if keyword.iskeyword(module):
        raise click.BadParameter(f"'{name}' is a word of Python's own, so that no module can have its name")
    if module.startswith(("test_", "conftest")):
        raise click.BadParameter(f"'{name}': modules that begin with test_ or conftest are taken for tests")
    return name


@click.command()
@click.argument("name", callback=_name)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Where to write, in place of the directory plugins near broker.xml; with --package, of the current one.",
)
@click.option(
    "--config",
    metavar="FILE",
    help=f"The broker.xml in whose directory plugins to write.  [default: {config_option.DEFAULT}]",
)
@click.option(
    "--package", is_flag=True, help="Make a project that pip can install, in place of a single module."
)
def new(name: str, folder: str | None, config: str | None, package: bool) -> None:
    """Write a policy NAME to begin with, and a test that passes.

    The policy is a module NAME.py in the directory plugins beside broker.xml, or beside the directory that broker.xml
    is in where there is one; the test is beside it. With --package both are in a directory stompring-NAME, with all
    that pip needs. Nothing is ever overwritten.
    """
    module = name.replace("-", "_")
    if package:
        texts = _package(name, module)
        target = Path(folder or ".") / f"stompring-{name.replace('_', '-')}"
        if os.path.lexists(target):
            raise click.ClickException(f"{target} is already there")
        _write(target, texts)
        # pip takes a bare name for that of a package in its index
        install = f"python -m pip install {target if target.is_absolute() else f'./{target}'}"
    else:
        target = Path(folder) if folder is not None else _plugin_folder(config)
        _refuse_known_module(module, target)
        _write(target, _module(name, module))
        install = ""
    click.echo("\nTo use it write into broker.xml, inside <core>:\n")
    for line in _filled("broker.xml", {"name": name}).splitlines():
        click.echo(f"  {line}")
    if install:
        click.echo(f"\nTo install it, where the broker is installed:\n\n  {install}")
    click.echo(f"\nTo test it:\n\n  python -m pytest {target if package else target / f'test_{module}.py'}")
    if not package and folder is not None:
        click.echo(
            "\nA broker looks into the directory 'plugins' beside its broker.xml, or beside the directory of that."
        )


def _plugin_folder(config: str | None) -> Path:
    """Of the two that a broker looks into the one that is there; beside broker.xml where none is."""
    from stompring.policy.load import PLUGIN_DIRECTORY, PluginSources

    file = config_option.existing(config)
    there = PluginSources(file).folders
    folder = there[0] if there else Path(file).parent / PLUGIN_DIRECTORY
    # as the user would write it
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _refuse_known_module(module: str, target: Path) -> None:
    """A test could not import a module of a name that Python knows already."""
    if module in sys.stdlib_module_names:
        raise click.ClickException(f"{module} is a module of Python's own; give the policy another name")
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return
    if spec is not None and spec.origin is not None and Path(spec.origin).parent != target.absolute():
        raise click.ClickException(
            f"there is a module {module} already, at {spec.origin}; give the policy another name"
        )


def _module(name: str, module: str) -> dict[Path, str]:
    values = {"name": name, "module": module, "kind": _class_name(name)}
    return {
        Path(f"{module}.py"): _filled("policy.py", values),
        Path(f"test_{module}.py"): _filled("test_policy.py", values),
    }


def _package(name: str, module: str) -> dict[Path, str]:
    from stompring.policy.load import ENTRY_POINT_GROUP

    values = {
        "name": name,
        "module": f"stompring_{module}",
        "kind": _class_name(name),
        "distribution": f"stompring-{name.replace('_', '-')}",
        "group": ENTRY_POINT_GROUP,
        "xml": _filled("broker.xml", {"name": name}),
    }
    return {
        Path("pyproject.toml"): _filled("pyproject.toml", values),
        Path("README.md"): _filled("README.md", values),
        Path(values["module"], "__init__.py"): _filled("policy.py", values),
        Path(values["module"], "py.typed"): "",
        Path("tests", f"test_{module}.py"): _filled("test_policy.py", values),
    }


def _class_name(name: str) -> str:
    """RateLimit for rate-limit, and RefusePolicy for refuse: what the template imports must not be hidden."""
    from stompring import policy

    words = name.replace("_", "-").split("-")
    kind = "".join(word[:1].upper() + word[1:] for word in words)
    taken = keyword.iskeyword(kind) or kind in (*policy.__all__, "PolicyHarness")
    return f"{kind}Policy" if taken else kind


def _filled(template: str, values: Mapping[str, str]) -> str:
    return Template((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(values)


def _write(target: Path, texts: Mapping[Path, str]) -> None:
    """All of the files, or none where one of them is there."""
    try:
        for path in texts:
            if os.path.lexists(target / path):
                raise click.ClickException(f"{target / path} is already there, and nothing is overwritten")
        for path, text in texts.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
            click.echo(f"wrote {file}")
    except OSError as error:
        raise click.ClickException(f"{error.filename} cannot be written: {error.strerror or error}") from None
