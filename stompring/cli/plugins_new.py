"""``stompring plugins new``: creates a policy and its test from templates."""

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
        raise click.BadParameter(f"{name.upper()} is a built-in policy; choose another name")
    if keyword.iskeyword(module):
        raise click.BadParameter(f"'{name}' is a keyword of Python and cannot be the name of a module")
    if module.startswith(("test_", "conftest")):
        raise click.BadParameter(f"'{name}': names that begin with test_ or conftest are reserved for tests")
    return name


@click.command()
@click.argument("name", callback=_name)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Output directory, in place of the directory plugins near broker.xml; with --package, of the current one.",
)
@click.option(
    "--config",
    metavar="FILE",
    help=f"The broker.xml beside which the directory plugins is.  [default: {config_option.DEFAULT}]",
)
@click.option(
    "--package", is_flag=True, help="Create a project that pip can install, in place of a single module."
)
def new(name: str, folder: str | None, config: str | None, package: bool) -> None:
    """Create a policy NAME and a test that passes.

    The policy is a module NAME.py in the directory plugins beside broker.xml, or in an existing one beside the
    directory of broker.xml; the test is beside it. With --package both are in a project stompring-NAME that pip can
    install. Existing files are never overwritten.
    """
    module = name.replace("-", "_")
    if package:
        texts = _package(name, module)
        target = Path(folder or ".") / f"stompring-{name.replace('_', '-')}"
        if os.path.lexists(target):
            raise click.ClickException(f"{target} exists already")
        _write(target, texts)
        # pip takes a bare name for that of a package in its index
        install = f"python -m pip install {target if target.is_absolute() else f'./{target}'}"
    else:
        target = Path(folder) if folder is not None else _plugin_folder(config)
        _refuse_known_module(module, target)
        _write(target, _module(name, module))
        install = ""
    click.echo("\nTo use it, add to <core> of broker.xml:\n")
    for line in _filled("broker.xml", {"name": name}).splitlines():
        click.echo(f"  {line}")
    if install:
        click.echo(f"\nTo install it beside the broker:\n\n  {install}")
    click.echo(f"\nTo test it:\n\n  python -m pytest {target if package else target / f'test_{module}.py'}")
    if not package and folder is not None:
        click.echo(
            "\nThe broker searches the directory 'plugins' beside broker.xml, and the one beside its directory."
        )


def _plugin_folder(config: str | None) -> Path:
    """The first existing plugin directory; the one beside broker.xml if there is none."""
    from stompring.policy.load import PLUGIN_DIRECTORY, PluginSources

    file = config_option.existing(config)
    existing = PluginSources(file).folders
    folder = existing[0] if existing else Path(file).parent / PLUGIN_DIRECTORY
    # as a relative path where possible
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _refuse_known_module(module: str, target: Path) -> None:
    """Refuse the name of an importable module: the test could not import the policy."""
    if module in sys.stdlib_module_names:
        raise click.ClickException(f"{module} is a module of the standard library; choose another name")
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return
    if spec is not None and spec.origin is not None and Path(spec.origin).parent != target.absolute():
        raise click.ClickException(f"a module {module} exists already, at {spec.origin}; choose another name")


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
    """RateLimit for rate-limit, and RefusePolicy for refuse, which the template imports."""
    from stompring import policy

    words = name.replace("_", "-").split("-")
    kind = "".join(word[:1].upper() + word[1:] for word in words)
    taken = keyword.iskeyword(kind) or kind in (*policy.__all__, "PolicyHarness")
    return f"{kind}Policy" if taken else kind


def _filled(template: str, values: Mapping[str, str]) -> str:
    return Template((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(values)


def _write(target: Path, texts: Mapping[Path, str]) -> None:
    """Write all files, or none if one of them exists."""
    try:
        for path in texts:
            if os.path.lexists(target / path):
                raise click.ClickException(f"{target / path} exists already and is not overwritten")
        for path, text in texts.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
            click.echo(f"wrote {file}")
    except OSError as error:
        raise click.ClickException(f"{error.filename} cannot be written: {error.strerror or error}") from None
