"""json-schema: accepts only messages whose bodies are valid by a JSON Schema."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from stompring.policy import AddressPolicy, Bytes, Offer, Refuse, parameter

try:
    jsonschema: Any = import_module("jsonschema")
    referencing: Any = import_module("referencing.jsonschema")
except ImportError:  # reported by `check` when the policy is used
    jsonschema = referencing = None

#: Maximum length of a value or path in a refusal.
MAX_SHOWN = 100


class JsonSchema(AddressPolicy):
    """Refuses messages whose bodies are not valid by a JSON Schema.

    For addresses with many producers: the producer of an invalid message gets an ERROR with the path in the body and
    the violated rule, but without the value. Drafts 3 to 2020-12 are supported by $schema in the file; the default is
    2020-12. References ($ref) are resolved within the file: nothing is fetched, and any other reference is an error
    when broker.xml is read. A changed file takes effect with the next reload.

    Requires the library jsonschema: pip install jsonschema, or the extra stompring[plugins]. Validation blocks the
    broker: 0.2 ms for a small order, 2 ms and more for each kilobyte of many small parts. Therefore longest-body. The
    schema is compiled once for each address.
    """

    schema: Path = parameter("The file with the schema.")
    content_types: tuple[str, ...] | None = parameter(
        "Content-types to validate; without it all messages, also those without a content-type.",
        None,
    )
    longest_body: Bytes = parameter(
        "Maximum size of a body; longer ones are refused without validation.", Bytes(64 * 1024), least=1
    )

    def check(self) -> None:
        _compile(self.schema)

    def created(self) -> None:
        self._validator = _compile(self.schema)
        types = self.content_types
        self._types = None if types is None else frozenset(map(_plain_type, types))

    def admit(self, offer: Offer) -> Refuse | None:
        if self._types is not None and _plain_type(offer.header("content-type") or "") not in self._types:
            return None
        if offer.size > self.longest_body:
            return Refuse(f"Body has {offer.size} bytes, the maximum is {self.longest_body} (longest-body)")
        try:
            body = json.loads(offer.body.decode("utf-8"), parse_constant=_no_number)
            wrong = next(self._validator.iter_errors(body), None)
            if wrong is None:
                return None
            return Refuse(f"Body is not valid by the schema: {_describe(wrong)}")
        except UnicodeDecodeError as error:
            return Refuse(f"Body is not UTF-8: invalid byte at position {error.start}")
        except json.JSONDecodeError as error:
            return Refuse(f"Body is not JSON: line {error.lineno} column {error.colno}: {error.msg}")
        except ValueError as error:
            return Refuse(f"Body is not JSON: {_short(str(error))}")
        except RecursionError:
            return Refuse("Body is nested too deeply")


def _compile(path: Path) -> Any:
    """Return the validator for a schema file. Raises `ValueError` with the name of the file."""
    if jsonschema is None:
        raise ValueError("requires the library jsonschema: pip install jsonschema, or 'stompring[plugins]'")
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"schema file {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"schema file {path} is not JSON: {error}") from error
    draft = jsonschema.Draft202012Validator
    if isinstance(schema, dict) and "$schema" in schema:
        named = schema["$schema"]
        draft = jsonschema.validators.validator_for(schema, default=None) if isinstance(named, str) else None
        if draft is None:
            raise ValueError(f"schema file {path}: unknown $schema: {_short(str(named))}")
    try:
        draft.check_schema(schema, format_checker=draft.FORMAT_CHECKER)  # with its regular expressions
        return draft(schema, registry=_within(schema, draft, path))
    except jsonschema.SchemaError as error:
        raise ValueError(
            f"schema file {path} is not a valid schema: {error.json_path}: {_short(error.message)}"
        ) from error
    except RecursionError as error:
        raise ValueError(f"schema file {path} is nested too deeply") from error


def _within(schema: Any, draft: Any, path: Path) -> Any:
    """Return a registry with this schema only. Raises `ValueError` for a reference to anything else."""
    dialect = draft.META_SCHEMA.get("$schema") or draft.META_SCHEMA["id"]
    specification = referencing.specification_with(dialect)
    resource = specification.create_resource(schema)
    registry = referencing.EMPTY_REGISTRY.with_resource(resource.id() or "", resource).crawl()
    unchecked = [(resource, registry.resolver(resource.id() or ""))]
    while unchecked:
        part, resolver = unchecked.pop()
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = part.contents.get(keyword) if isinstance(part.contents, dict) else None
            if isinstance(target, str):
                try:
                    resolver.lookup(target)
                except Exception as error:  # of many types, each for a reference that cannot be resolved
                    raise ValueError(
                        f"schema file {path}: {keyword} '{_short(target)}' cannot be resolved in this file, "
                        "and nothing is fetched from elsewhere"
                    ) from error
        unchecked += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]
    return registry


def _describe(error: Any) -> str:
    """Describe the path in the body and the violated rule, without the value, which may be long or confidential."""
    where, rule, value = _short(error.json_path), error.validator, error.validator_value
    if rule is None:
        return f"{where} is not allowed"
    if rule == "required" and isinstance(value, list):
        missing = [name for name in value if name not in error.instance]
        return f"{where} lacks {_short(', '.join(missing))} (required)"
    if rule == "type":
        return f"{where} must be of type {_short(value if isinstance(value, str) else ' or '.join(map(str, value)))}"
    return f"{where} violates {_short(f'{rule}: {json.dumps(value)}')}"


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _plain_type(text: str) -> str:
    """Return a content-type without parameters such as charset."""
    return text.partition(";")[0].strip().lower()


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
