"""Typed parameters of a policy: declared on its class, written as ``<property key="…" value="…"/>`` in broker.xml."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import get_annotations
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin

from stompring.settings import value_types

#: A duration. A plain number in broker.xml, as all durations.
Milliseconds = NewType("Milliseconds", int)

#: A size. Written in broker.xml as all sizes: 1048576, 100K, 10MB.
Bytes = NewType("Bytes", int)

#: The default of a required parameter.
REQUIRED: Any = object()


@dataclass(slots=True)
class Parameter:
    """One parameter: help, default and bounds; key, kind and reader are set when its class is created."""

    help: str
    default: Any = REQUIRED
    least: float = -math.inf
    most: float = math.inf
    key: str = ""
    kind: str = ""
    read: Callable[[str, Path], Any] = field(default=lambda text, folder: text)

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is REQUIRED

    @property
    def shown_default(self) -> str:
        """The default as written in broker.xml."""
        if self.required:
            return "required"
        if self.default is None:
            return "none"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)

    @property
    def takes(self) -> str:
        """The type of its values, with its bounds: ``whole number, at least 1``."""
        if self.least == -math.inf and self.most == math.inf:
            return self.kind
        if self.most == math.inf:
            return f"{self.kind}, at least {self.least:.15g}"
        if self.least == -math.inf:
            return f"{self.kind}, at most {self.most:.15g}"
        return f"{self.kind}, from {self.least:.15g} to {self.most:.15g}"


def parameter(help: str, default: Any = REQUIRED, *, least: float = -math.inf, most: float = math.inf) -> Any:
    """Declare a parameter: ``burst: int = parameter("Messages accepted at once.", 10, least=1)``.

    The annotation is its type: ``str``, ``int``, ``float``, ``bool``, `Milliseconds`, `Bytes`,
    ``pathlib.Path`` (relative to broker.xml), ``Literal[…]`` of strings, ``tuple[str, …]`` (a comma list), each also
    ``| None`` with None as the default. In broker.xml the name has dashes in place of underscores.
    """
    return Parameter(help, default, least, most)


def declared_parameters(owner: type) -> dict[str, Parameter]:
    """The parameters of a class by attribute, those of its bases first. Raises `TypeError` for an invalid one."""
    found: dict[str, Parameter] = {}
    for base in reversed(owner.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Parameter):
                found[name] = value
                if not value.key:
                    _complete(value, base, name)
    return found


def _complete(one: Parameter, owner: type, name: str) -> None:
    """Set key, kind and reader of a parameter. Raises `TypeError` for an invalid declaration."""
    where = f"{owner.__name__}.{name}"
    taken = next((base for base in owner.__mro__[1:] if name in vars(base)), None)
    if name == "address" or (taken is not None and not isinstance(vars(taken)[name], Parameter)):
        raise TypeError(f"{where}: the name is reserved, AddressPolicy has an attribute of that name")
    one.kind, read = _reader(_annotation(owner, name), where)
    if (one.least, one.most) != (-math.inf, math.inf):
        if one.kind not in NUMERIC:
            raise TypeError(f"{where}: least and most apply to numbers only, not to {one.kind}")
        if not (one.required or one.default is None or one.least <= one.default <= one.most):
            raise TypeError(f"{where}: default {one.default} is out of bounds")
        read = _bounded(read, one.least, one.most)
    one.key, one.read = name.replace("_", "-"), read


def _annotation(owner: type, name: str) -> Any:
    hint = get_annotations(owner).get(name)
    if hint is None:
        raise TypeError(f"parameter {name} of {owner.__name__} has no type annotation")
    while isinstance(hint, str):  # as typing.get_type_hints does, of all annotations; one may be quoted twice
        try:
            hint = eval(hint, vars(sys.modules[owner.__module__]))  # nosec B307
        except Exception as error:
            raise TypeError(f"annotation of {owner.__name__}.{name} cannot be evaluated: {error}") from error
    return hint


#: Kinds that may have bounds.
NUMERIC = frozenset(("whole number", "number", "milliseconds", "bytes"))

Reader = Callable[[str, Path], Any]


def _plain(read: Callable[[str], Any]) -> Reader:
    return lambda text, folder: read(text)


_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def _decimal(text: str) -> float:
    # float() would take "1_0" and the digits of other scripts as well
    number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise ValueError("must be a number")
    return number


def _comma_list(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise ValueError("must be a comma-separated list without empty items")
    return words


READERS: Mapping[Any, tuple[str, Reader]] = {
    str: ("text", _plain(value_types.name)),
    int: ("whole number", _plain(value_types.whole_number)),
    float: ("number", _plain(_decimal)),
    bool: ("true or false", _plain(value_types.boolean)),
    Milliseconds: ("milliseconds", _plain(value_types.milliseconds)),
    Bytes: ("bytes", _plain(value_types.byte_size)),
    Path: ("file", lambda text, folder: folder / value_types.name(text)),
    tuple[str, ...]: ("comma list", _plain(_comma_list)),
}


def _reader(hint: Any, where: str) -> tuple[str, Reader]:
    if get_origin(hint) in (Union, UnionType):
        inner = [one for one in get_args(hint) if one is not NoneType]
        if len(inner) == 1:
            return _reader(inner[0], where)
    if get_origin(hint) is Literal:
        words = get_args(hint)
        if all(isinstance(word, str) for word in words):
            return ", ".join(words), _plain(_one_of(words))
    try:
        return READERS[hint]
    except (KeyError, TypeError):
        raise TypeError(f"{where}: a parameter cannot be of type {hint}") from None


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return read


def _bounded(read: Reader, least: float, most: float) -> Reader:
    if most == math.inf:
        rule = f"must be at least {least:.15g}"
    elif least == -math.inf:
        rule = f"must be at most {most:.15g}"
    else:
        rule = f"must be from {least:.15g} to {most:.15g}"

    def bounded(text: str, folder: Path) -> Any:
        number = read(text, folder)
        if not least <= number <= most:
            raise ValueError(rule)
        return number

    return bounded
