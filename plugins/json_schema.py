"""Only bodies that keep to a JSON Schema are accepted."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from stompring.policy import AddressPolicy, Bytes, Offer, Refuse, parameter

try:
    jsonschema: Any = import_module("jsonschema")
    referencing: Any = import_module("referencing.jsonschema")
except ImportError:  # told when the policy is used, and not as a fault of this file
    jsonschema = referencing = None

#: Characters of a value, or of a place in the body, that a refusal shows.
SHOWN = 100


class JsonSchema(AddressPolicy):
    """Refuses messages whose bodies do not keep to a JSON Schema.

    For addresses with many producers, where a wrong message should be its producer's trouble and not that of every
    consumer. The producer gets an ERROR that tells where in the body something is wrong and which rule it breaks, but
    never the body. Drafts 3 to 2020-12 are known; $schema in the file says which one, else it is 2020-12. References
    ($ref) lead within the file: nothing is ever fetched, and one that leads elsewhere is told when broker.xml is read.
    A changed file counts with the next reload.

    Needs the library jsonschema: pip install jsonschema, or the extra stompring[plugins]. Costs a look at all of every
    body, during which the broker does nothing else: 0.2 ms for a small order, 2 ms and more for each kilobyte of many
    small parts. That is why longest-body is there. The schema is compiled once for each address.
    """

    schema: Path = parameter("The file with the schema.")
    content_types: tuple[str, ...] | None = parameter(
        "The content-types that are looked at; without them all messages are, also those that name none.",
        None,
    )
    longest_body: Bytes = parameter(
        "Longer bodies are refused without a look at them.", Bytes(64 * 1024), least=1
    )

    def check(self) -> None:
        """See AddressPolicy."""
        _compile(self.schema)

    def created(self) -> None:
        """See AddressPolicy."""
        self._validator = _compile(self.schema)
        types = self.content_types
        self._types = None if types is None else frozenset(map(_plain_type, types))

    def admit(self, offer: Offer) -> Refuse | None:
        """See AddressPolicy."""
        if self._types is not None and _plain_type(offer.header("content-type") or "") not in self._types:
            return None
        if offer.size > self.longest_body:
            return Refuse(f"The body has {offer.size} bytes; {self.longest_body} are allowed (longest-body)")
        try:
            body = json.loads(offer.body.decode("utf-8"), parse_constant=_no_number)
            wrong = next(self._validator.iter_errors(body), None)
            if wrong is None:
                return None
            return Refuse(f"The body does not keep to its schema: {_describe(wrong)}")
        except UnicodeDecodeError as error:
            return Refuse(f"The body is not UTF-8: byte {error.start} cannot be")
        except json.JSONDecodeError as error:
            return Refuse(f"The body is not JSON: line {error.lineno} column {error.colno}: {error.msg}")
        except ValueError as error:
            return Refuse(f"The body is not JSON: {_short(str(error))}")
        except RecursionError:
            return Refuse("The body is nested too deeply")


def _compile(path: Path) -> Any:
    """What checks bodies. Raises `ValueError` that names the file."""
    if jsonschema is None:
        raise ValueError("needs the library jsonschema: pip install jsonschema, or 'stompring[plugins]'")
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
            raise ValueError(f"schema file {path}: its $schema is not known: {_short(str(named))}")
    try:
        draft.check_schema(schema, format_checker=draft.FORMAT_CHECKER)  # with its regular expressions
        return draft(schema, registry=_within(schema, draft, path))
    except jsonschema.SchemaError as error:
        raise ValueError(
            f"schema file {path} is no valid schema: {error.json_path}: {_short(error.message)}"
        ) from error
    except RecursionError as error:
        raise ValueError(f"schema file {path} is nested too deeply") from error


def _within(schema: Any, draft: Any, path: Path) -> Any:
    """A registry with nothing but this schema in it. Raises `ValueError` for a reference that leads elsewhere."""
    dialect = draft.META_SCHEMA.get("$schema") or draft.META_SCHEMA["id"]
    specification = referencing.specification_with(dialect)
    resource = specification.create_resource(schema)
    registry = referencing.EMPTY_REGISTRY.with_resource(resource.id() or "", resource).crawl()
    looking = [(resource, registry.resolver(resource.id() or ""))]
    while looking:
        part, resolver = looking.pop()
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = part.contents.get(keyword) if isinstance(part.contents, dict) else None
            if isinstance(target, str):
                try:
                    resolver.lookup(target)
                except Exception as error:  # of many kinds, and any of them means that it leads nowhere
                    raise ValueError(
                        f"schema file {path}: {keyword} '{_short(target)}' does not lead to a place in this file, "
                        "and nothing is fetched from elsewhere"
                    ) from error
        looking += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]
    return registry


def _describe(error: Any) -> str:
    """Where in the body, and which rule: without its value, which may be long, or nobody else's business."""
    where, rule, value = _short(error.json_path), error.validator, error.validator_value
    if rule is None:
        return f"{where} is not allowed"
    if rule == "required" and isinstance(value, list):
        lacking = [name for name in value if name not in error.instance]
        return f"{where} lacks {_short(', '.join(lacking))} (required)"
    if rule == "type":
        return f"{where} must be of type {_short(value if isinstance(value, str) else ' or '.join(map(str, value)))}"
    return f"{where} breaks the rule {_short(f'{rule}: {json.dumps(value)}')}"


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _plain_type(text: str) -> str:
    """A content-type without its parameters, as charset."""
    return text.partition(";")[0].strip().lower()


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
