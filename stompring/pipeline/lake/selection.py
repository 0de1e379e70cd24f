"""Selection of messages of a lake: by SQL or a selector, times and addresses."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import ge, lt
from typing import Any, NamedTuple

from stompring.errors import PipelineError
from stompring.pipeline.arrays import rows_where
from stompring.selector import InvalidSelector, compile_selector

log = logging.getLogger(__name__)


class InvalidCondition(PipelineError):
    """A condition is neither SQL over the columns nor a selector. The text has both errors."""


class MessageSelection(NamedTuple):
    """Criteria for messages of a lake.

    ``where``: an SQL condition over the columns of ``messages``; if it is not valid SQL, a selector. ``since`` <=
    timestamp < ``until``: epoch ms, None: no limit. ``addresses``: patterns with ``*`` and ``#``; empty: all addresses.
    """

    where: str | None = None
    since: int | None = None
    until: int | None = None
    addresses: tuple[str, ...] = ()

    def of(self, messages: Any) -> Any:
        """Return the selected rows of the DataFrame ``messages``. Raises `InvalidCondition`."""
        from pyspark.sql.functions import col, lit

        for limit, compare in ((self.since, ge), (self.until, lt)):
            if limit is not None:
                moment = lit(datetime.fromtimestamp(limit / 1000, UTC))
                messages = messages.where(compare(col("timestamp"), moment))
        if self.addresses:
            messages = messages.where(address_condition(self.addresses))
        return messages if self.where is None else _where(messages, self.where)


def address_condition(addresses: Sequence[str]) -> Any:
    """Return a Spark condition: the address of a row matches one of the patterns."""
    from pyspark.sql.functions import col, concat, lit

    return concat(col("address"), lit(".")).rlike(f"^(?:{'|'.join(map(_pattern_regex, addresses))})$")


def _pattern_regex(address: str) -> str:
    """Return a regular expression for a pattern of address-settings: ``*`` is one word, ``#`` any number of words."""
    some = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    return "".join(some.get(word, "".join(map(_literal, word)) + r"\.") for word in address.split("."))


def _literal(letter: str) -> str:
    return letter if letter.isalnum() else f"\\x{{{ord(letter):x}}}"


def _where(messages: Any, text: str) -> Any:
    from pyspark.errors import AnalysisException, ParseException

    try:
        selected = messages.where(text)
        selected.schema  # noqa: B018 - makes Spark check the condition now
        return selected
    except (AnalysisException, ParseException) as reason:
        sql = str(reason).partition("\n")[0]
    try:
        compile_selector(text)
    except InvalidSelector as reason:
        raise InvalidCondition(
            f"condition {text!r} is neither SQL ({sql}) nor a selector ({reason})"
        ) from None
    log.info("condition %r is evaluated as a selector", text)
    return messages.mapInArrow(partial(_selected, text), messages.schema)


def _selected(selector: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the rows that match a selector. Called in tasks."""
    matches = compile_selector(selector).matches
    for batch in batches:
        rows = rows_where([matches(SelectableRow(row)) for row in batch.to_pylist()], batch)
        if rows.num_rows:
            yield rows


class SelectableRow:
    """A row of ``messages`` with the interface of a message, for the evaluation of selectors."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._headers = dict(row["headers"] or ())

    def get_property(self, name: str) -> str | int | float | bool | None:
        """Return the value of a header or of a system property, None if there is none."""
        name = _OTHER_NAMES.get(name, name)
        if name in _SYSTEM:
            found: str | int | None = _SYSTEM[name](self._row)
            return found
        return self._headers.get(name)

    def get_body(self) -> bytes:
        """Return the body of the message."""
        return bytes(self._row["body"] or b"")


def _milliseconds(time: datetime | None) -> int:
    return 0 if time is None else round(time.timestamp() * 1000)


#: System properties: names in selectors for columns of ``messages`` other than headers.
_SYSTEM: dict[str, Any] = {
    "AMQPriority": lambda row: row["priority"],
    "AMQTimestamp": lambda row: _milliseconds(row["timestamp"]),
    "AMQDurable": lambda row: "DURABLE" if row["durable"] else "NON_DURABLE",
    "AMQExpiration": lambda row: _milliseconds(row["expires"]),
    "AMQSize": lambda row: len(row["body"] or b""),
    "AMQAddress": lambda row: row["address"],
    "AMQUserID": lambda row: row["user"],
    "JMSDeliveryMode": lambda row: "PERSISTENT" if row["durable"] else "NON_PERSISTENT",
    "JMSMessageID": lambda row: str(row["message_id"]),
}

#: Synonyms of system properties and headers.
_OTHER_NAMES = {
    "JMSPriority": "AMQPriority",
    "JMSTimestamp": "AMQTimestamp",
    "JMSExpiration": "AMQExpiration",
    "AMQGroupID": "JMSXGroupID",
    "JMSCorrelationID": "correlation-id",
    "JMSType": "type",
    "JMSReplyTo": "reply-to",
}
