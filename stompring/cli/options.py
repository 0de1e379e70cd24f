"""Options and arguments of commands, declared as defaults of the parameters that receive the values.

    @command(queue)
    def take(name: str, limit: int | None = option("N", "At most N messages.", min=1), remote: Remote = running):

The name of the parameter is the name of the option, and its annotation the type: ``bool`` is a flag, ``tuple`` an
option that can be repeated; an option without ``None`` and without a default is required. A parameter without a default
is an argument. `provided` makes a default from a function: its parameters become options of the command, too, and the
parameter receives its result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import click

from .output import DURATION, FiniteRange, Parsed, Values


class Declared(NamedTuple):
    """An option or an argument. ``texts``: names other than that of the parameter, metavar and help."""

    kind: type[click.Parameter]
    texts: tuple[str, ...]
    settings: Values


class Provided(NamedTuple):
    """A function that returns a value for a command. Its parameters are further options of the command.

    A generator function yields the value, and cleans up after the command.
    """

    function: Callable[..., Any]


def option(*texts: str, **settings: Any) -> Any:
    """An option: its names if they differ from that of the parameter, its metavar if it has one, and its help.

    ``min``, ``max``, ``min_open`` are the range of a number; ``exists`` and ``dir_okay`` apply to a path, and the
    metavar DIR means a directory. ``choices``: allowed values, in capital or small letters. ``exact``: allowed values,
    case-sensitive. ``check`` raises ValueError for an invalid value. All other settings are those of click.
    """
    return Declared(click.Option, texts, settings)


def argument(*metavar: str, **settings: Any) -> Any:
    """An argument with a metavar other than its name, or with settings as for `option`."""
    return Declared(click.Argument, metavar, settings)


def provided(function: Callable[..., Any]) -> Any:
    """Declare a parameter whose value ``function`` returns (see `Provided`)."""
    return Provided(function)


class _Command(click.Command):
    """A command. It also accepts its options before its name: ``stompring --server URL queue list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {option for parameter in self.params for option in parameter.opts}
        root = ctx.find_root()
        leading = []
        for parameter in root.command.params:
            option, value = parameter.opts[0], root.params.get(parameter.name or "")
            if value is None or value is False:
                continue
            if option in known:
                leading.append(option if value is True else f"{option}={value}")
            elif not ctx.resilient_parsing:
                path = ctx.command_path.removeprefix(root.command_path)
                root.fail(f"stompring{path} has no option {option}")
        return super().parse_args(ctx, [*leading, *args])


def command(
    group: click.Group | None = None, name: str | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command, in ``group`` if given. Its docstring is the help."""

    def decorate(function: Callable[..., None]) -> click.Command:
        parameters, call = _bound(function)

        @wraps(function)
        def called(**values: Any) -> None:
            call(values)

        return (click if group is None else group).command(name, _Command, params=parameters)(called)

    return decorate


def _bound(function: Callable[..., Any]) -> tuple[list[click.Parameter], Callable[[Values], Any]]:
    """Return the options and arguments of ``function``, and a function that calls ``function`` with their values."""
    parameters: list[click.Parameter] = []
    readers: dict[str, Callable[[Values], Any]] = {}
    for name, each in inspect.signature(function).parameters.items():
        if isinstance(each.default, Provided):
            more, readers[name] = _bound(each.default.function)
            parameters += more
        else:
            declared = each.default if isinstance(each.default, Declared) else argument()
            made = _parameter(name, each.annotation, declared)
            parameters.append(made)
            readers[name] = itemgetter(made.name)

    def call(values: Values) -> Any:
        given = {name: read(values) for name, read in readers.items()}
        if inspect.isgeneratorfunction(function):
            return click.get_current_context().with_resource(contextmanager(function)(**given))
        return function(**given)

    return parameters, call


def _parameter(name: str, annotation: str, declared: Declared) -> click.Parameter:
    several, optional = annotation.startswith("tuple["), annotation.endswith(" | None")
    kind = annotation.removeprefix("tuple[").removesuffix(", ...]").removesuffix(" | None")
    flags = [text for text in declared.texts if text.startswith("-")] or [f"--{name.replace('_', '-')}"]
    metavar, text = ["", "", *(text for text in declared.texts if not text.startswith("-"))][-2:]
    settings = dict(declared.settings)
    if check := settings.pop("check", None):
        settings["type"] = _checked(check)
    if declared.kind is click.Argument:
        settings.setdefault("required", not optional)
        return click.Argument(
            [name],
            metavar=text or None,
            nargs=-1 if several else 1,
            **_typed(kind, text or name.upper(), settings),
        )
    given = settings.get("default") is not None
    settings = {
        "show_default": given,
        "multiple": several,
        "is_flag": kind == "bool" or None,
        "required": not (optional or several or given or kind == "bool"),
        **settings,
    }
    return click.Option(flags, metavar=metavar or None, help=text, **_typed(kind, metavar, settings))


def _checked(check: Callable[[str], None]) -> Parsed:
    def parse(text: str) -> str:
        check(text)
        return text

    return Parsed("text", parse)


def _typed(kind: str, metavar: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with click's type for the annotation ``kind``."""
    limits = {name: settings.pop(name) for name in ("min", "max", "min_open") if name in settings}
    for name in settings.keys() & {"choices", "exact"}:
        settings["type"] = click.Choice(settings.pop(name), case_sensitive=name == "exact")
    if "type" in settings or kind == "bool":
        return settings
    if kind == "Path":
        # a FILE must not be a directory, unless ``dir_okay`` allows it; a DIR must not be a file
        directory = settings.pop("dir_okay", metavar != "FILE")
        settings["type"] = click.Path(
            settings.pop("exists", False), metavar != "DIR", directory, path_type=Path
        )
    elif kind == "float":
        settings["type"] = DURATION if metavar == "DURATION" else FiniteRange(**limits)
    elif kind == "int":
        settings["type"] = click.IntRange(**limits) if limits else int
    elif metavar == "DIR":
        settings["type"] = click.Path(file_okay=False)
    return settings


# ---- options of several commands

JSON = option("--json", "Print JSON.")
JSON_OBJECT = option("--json", "Print one JSON object.")
JSON_FOR_TEXT = option("--json", "Print one JSON object in place of text.")

HEADERS = option("-H", "--header", "NAME=VALUE", "A header. Repeatable.")

YES = option("Do not ask for confirmation.")

ROUTING_TYPES = ("ANYCAST", "MULTICAST")


@contextmanager
def bad_value(name: str, kinds: type[Exception] | tuple[type[Exception], ...] = ValueError) -> Iterator[None]:
    """Context manager: convert exceptions of ``kinds`` to `click.BadParameter` for the option ``name``."""
    try:
        yield
    except kinds as reason:
        raise click.BadParameter(getattr(reason, "text", str(reason)), param_hint=name) from None


def header_pair(text: str, reserved: Collection[str] = ()) -> tuple[str, str]:
    """Name and value of ``--header NAME=VALUE``. Raises `click.UsageError`, also for a name in ``reserved``."""
    name, value = pair(text, "--header must be NAME=VALUE")
    if name in reserved:
        raise click.UsageError(f"--header {name} is set by this command")
    return name, value


def pair(text: str, rule: str) -> tuple[str, str]:
    """The texts before and after an equals sign. ``rule``: the expected form, for the `click.UsageError`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{rule}, not {text!r}")
    return name, value


def message_headers(
    priority: int | None, delay: float | None, period: float | None, repeat: int | None, cron: str | None
) -> dict[str, str]:
    """Return the headers for the options of priority and schedule. ``delay`` and ``period`` are seconds."""
    given = {
        "priority": priority,
        "AMQ_SCHEDULED_DELAY": None if delay is None else round(delay * 1000),
        "AMQ_SCHEDULED_PERIOD": None if period is None else round(period * 1000),
        "AMQ_SCHEDULED_REPEAT": repeat,
        "AMQ_SCHEDULED_CRON": cron,
    }
    return {name: str(value) for name, value in given.items() if value is not None}
