"""Typed parameters: how their texts are read, their bounds, and declarations that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from stompring.policy import AddressPolicy, Bytes, Milliseconds, parameter

FOLDER = Path("/etc/broker")


class Everything(AddressPolicy):
    """One parameter of each type."""

    text: str = parameter("A text.")
    whole_number: int = parameter("A number.", 3, least=1, most=5)
    number: float = parameter("A number.", 0.5, least=0)
    switch: bool = parameter("A switch.", False)
    time: Milliseconds = parameter("A time.", 1000)
    size: Bytes = parameter("A size.", 10 * 1024)
    file: Path | None = parameter("A file.", None)
    choice: Literal["one", "two"] = parameter("A choice.", "one")
    words: tuple[str, ...] = parameter("Words.", ("a", "b"))
    maybe: int | None = parameter("Perhaps a number.", None, most=9)


class Heir(Everything):
    """Has one more, and another default for one."""

    number: float = parameter("A number.", 2.5)
    extra: str = parameter("More.", "x")


PARAMETERS = Everything.parameters


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("text", "a b", "a b"),
        ("whole_number", "5", 5),
        ("number", "1e3", 1000.0),
        ("switch", "TRUE", True),
        ("time", "250", 250),
        ("size", "10MB", 10 * 1024 * 1024),
        ("file", "x/schema.json", FOLDER / "x/schema.json"),
        ("file", "/elsewhere", Path("/elsewhere")),
        ("choice", "two", "two"),
        ("words", "x, y ,z", ("x", "y", "z")),
        ("maybe", "-4", -4),
    ],
)
def test_texts_are_read(name, text, value):
    assert PARAMETERS[name].read(text, FOLDER) == value


@pytest.mark.parametrize(
    "name, text, fault",
    [
        ("text", "", "must not be empty"),
        ("whole_number", "2.5", "must be a whole number"),
        ("whole_number", "0", "must be from 1 to 5"),
        ("whole_number", "6", "must be from 1 to 5"),
        ("number", "nan", "must be a number"),
        ("number", "1_0", "must be a number"),
        ("number", "\u0661", "must be a number"),
        ("number", "1e999", "must be a number"),
        ("number", "-1", "must be at least 0"),
        ("switch", "yes", "must be true or false"),
        ("time", "2s", "must be a plain number of milliseconds"),
        ("size", "10 XB", "must be a number of bytes"),
        ("file", "", "must not be empty"),
        ("choice", "three", "must be one of one, two"),
        ("words", "a,,b", "must be a comma-separated list"),
        ("maybe", "10", "must be at most 9"),
    ],
)
def test_invalid_parameters_are_reported(name, text, fault):
    with pytest.raises(ValueError, match=fault):
        PARAMETERS[name].read(text, FOLDER)


def test_they_are_known_by_their_names_in_order():
    assert list(PARAMETERS) == [
        "text", "whole_number", "number", "switch", "time", "size", "file", "choice", "words", "maybe",
    ]  # fmt: skip
    assert [one.key for one in PARAMETERS.values()][:2] == ["text", "whole-number"]
    assert [one.required for one in PARAMETERS.values()] == [True, *[False] * 9]
    assert [one.kind for one in PARAMETERS.values()] == [
        "text", "whole number", "number", "true or false", "milliseconds", "bytes", "file", "one, two",
        "comma list", "whole number",
    ]  # fmt: skip
    assert [one.shown_default for one in PARAMETERS.values()] == [
        "required", "3", "0.5", "false", "1000", "10240", "none", "one", "a,b", "none",
    ]  # fmt: skip


def test_an_heir_has_them_too():
    assert Heir.parameters["extra"].default == "x"
    assert Heir.parameters["number"].default == 2.5
    assert Heir.parameters["size"] is PARAMETERS["size"]
    assert Heir.parameters["number"].read("-1", FOLDER) == -1, "its own has no bounds"


def test_a_policy_without_any():
    class Plain(AddressPolicy):
        """Has none."""

    assert Plain.parameters == {}


def test_a_type_that_cannot_be():
    with pytest.raises(TypeError, match=r"Wrong\.when: a parameter cannot be of type"):

        class Wrong(AddressPolicy):
            """Has a parameter of a type that nobody can read."""

            when: dict[str, int] = parameter("When?")


def test_an_annotation_that_means_nothing():
    with pytest.raises(TypeError, match=r"annotation of Wrong\.when cannot be evaluated"):

        class Wrong(AddressPolicy):
            """Has a parameter whose annotation names nothing."""

            when: Sometime = parameter("When?")  # noqa: F821


@pytest.mark.parametrize("name", ["admit", "address", "parameters", "full_answer"])
def test_a_name_that_is_taken(name):
    namespace = {name: parameter("What?"), "__annotations__": {name: str}, "__module__": __name__}
    with pytest.raises(TypeError, match=f"Wrong.{name}: the name is reserved"):
        type("Wrong", (AddressPolicy,), namespace)


@pytest.mark.parametrize(
    "hint, more, fault",
    [
        (str, {"least": 1}, "least and most apply to numbers only, not to text"),
        (bool, {"most": 1}, "least and most apply to numbers only"),
        (int, {"default": 0, "least": 1}, "default 0 is out of bounds"),
        (float, {"default": 2.0, "most": 1}, "default 2.0 is out of bounds"),
    ],
)
def test_declarations_that_contradict_themselves(hint, more, fault):
    namespace = {"x": parameter("What?", **more), "__annotations__": {"x": hint}, "__module__": __name__}
    with pytest.raises(TypeError, match=fault):
        type("Wrong", (AddressPolicy,), namespace)


def test_bounds_are_shown_as_they_are():
    class Large(AddressPolicy):
        """Takes large numbers."""

        size: Bytes = parameter("A size.", least=1048577)

    with pytest.raises(ValueError, match="must be at least 1048577"):
        Large.parameters["size"].read("1K", FOLDER)


def test_a_parameter_without_annotation():
    with pytest.raises(TypeError, match="parameter when of Wrong has no type annotation"):

        class Wrong(AddressPolicy):
            """Forgot the type."""

            when = parameter("When?")
