"""Each queue option is one row: every reader and writer of queue options has it without a line of its own."""

from dataclasses import fields

import pytest

from stompring.broker.reference import LEAST, QueueAttributes
from stompring.cli.data_import import CHANGEABLE as SENT_IN_PATCH
from stompring.cli.data_import import IMMUTABLE
from stompring.cli.data_import import IMMUTABLE_VALUES as SENT_IN_POST
from stompring.settings import model
from stompring.settings.broker_xml import parse_broker_xml
from stompring.settings.model import (
    CHANGEABLE,
    CREATE_ONLY,
    NOT_IN_HTTP,
    AddressSettings,
    BrokerConfiguration,
    FrameLimits,
    QueueConfiguration,
    RoutingType,
    StompAcceptor,
    WebSocketSettings,
    camel_case,
    options_of,
    queue_defaults,
)
from stompring.settings.urls import PARAMETER_TYPES
from stompring.store.bindings import attributes_of, describe_attributes
from stompring.store.export import QUEUE_FIELDS, PortableQueue

from ..admin.admin_server import AdminServer
from .documents import takes

ROWS = [row for row in options_of(QueueConfiguration) if row.name != "name"]
EVERY = [
    row
    for kind in vars(model).values()
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__")
    for row in options_of(kind)
]

by_name = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])


def another_value(row):
    """A value that the option does not have by default."""
    value_type = PARAMETER_TYPES[row.type]
    default = queue_defaults()[row.name]
    if value_type.kind is bool:
        return not default
    if value_type.choices is not None:
        return next(each for each in value_type.choices if each != default)
    return 7 if value_type.kind is int else "other"


def attributes_with(row):
    given = {row.name: another_value(row) if row.type != "filter" else "a = 1"}
    return QueueAttributes.of(QueueConfiguration("q", "a", RoutingType.ANYCAST, **given), AddressSettings())


def test_every_option_of_a_queue_has_a_row():
    set_by_the_broker = {"address", "routing_type", "auto_created", "auto_delete", "temporary", "configured"}
    assert {each.name for each in fields(QueueConfiguration)} - set_by_the_broker == {
        "name", *(row.name for row in ROWS),
    }  # fmt: skip


@by_name
def test_the_broker_has_the_option(row):
    assert getattr(attributes_with(row), row.name) != queue_defaults()[row.name]
    plain = QueueAttributes.of(QueueConfiguration("q", "a", RoutingType.ANYCAST), AddressSettings())
    assert getattr(plain, row.name) == queue_defaults()[row.name]
    assert (row.name in LEAST) == (PARAMETER_TYPES[row.type].kind is int)


@by_name
def test_an_address_setting_has_the_default(row):
    if not row.inherits:
        return
    setting = next(each for each in options_of(AddressSettings) if each.name == row.inherits)
    assert (setting.type, setting.unit, setting.source) == (row.type, row.unit, row.source)
    assert row.default is None
    given = {row.inherits: another_value(row)}
    made = QueueAttributes.of(QueueConfiguration("q", "a", RoutingType.ANYCAST), AddressSettings(**given))
    assert getattr(made, row.name) == another_value(row)


@by_name
def test_broker_xml_sets_the_option(row):
    value = another_value(row)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if row.type == "filter":
        attribute, element = "", '<filter string="a = 1"/>'
    elif "attribute" in row.written_as:
        attribute, element = f' {row.xml_name}="{text}"', ""
    else:
        attribute, element = "", f"<{row.xml_name}>{text}</{row.xml_name}>"
    queue = f'<queue name="q"{attribute}>{element}</queue>'
    file = (
        '<configuration><core><addresses><address name="a"><anycast>'
        f"{queue}</anycast></address></addresses></core></configuration>"
    )
    (address,) = parse_broker_xml(file.encode(), "broker.xml").addresses
    assert getattr(address.queues[0], row.name) == ("a = 1" if row.type == "filter" else value)


@by_name
def test_the_http_interface_has_the_option(row):
    server = AdminServer()
    value = "a = 1" if row.type == "filter" else another_value(row)
    server.done("POST", "/api/v1/queues", {"name": "q", row.json_name: value})
    assert server.get("/api/v1/queues/q")[row.json_name] == value
    again = server.ask("PATCH", "/api/v1/queues/q", {row.json_name: queue_defaults()[row.name]})
    assert again.status == (200 if row.http == CHANGEABLE else 409), again.text


@by_name
def test_an_import_has_the_option(row):
    assert row.json_name in (SENT_IN_PATCH if row.http == CHANGEABLE else SENT_IN_POST)
    assert (row.name in IMMUTABLE) == (row.http == CREATE_ONLY)


@by_name
def test_an_export_and_the_journal_keep_the_option(row):
    attributes = attributes_with(row)
    described = describe_attributes(attributes)
    assert getattr(attributes_of(described), row.name) == getattr(attributes, row.name)
    assert QUEUE_FIELDS[row.json_name] == row.name
    exported = PortableQueue("q", "a", described).fields()
    assert PortableQueue.of(exported).attributes[row.name] == getattr(attributes, row.name)


@pytest.mark.parametrize("row", EVERY, ids=[row.name for row in EVERY])
def test_rows_are_complete(row):
    assert not row.type or row.type in PARAMETER_TYPES
    assert row.http in (NOT_IN_HTTP, CREATE_ONLY, CHANGEABLE)
    if row.meaning:
        assert row.meaning.endswith((".", "`.")) and row.source.split(",")[0] in ("Artemis", "stompring")
    if row.type and PARAMETER_TYPES[row.type].kind is int:
        assert (row.unit == "bytes") == takes(PARAMETER_TYPES[row.type].read, "10M")


@pytest.mark.parametrize(
    "kind", [BrokerConfiguration, AddressSettings, StompAcceptor, FrameLimits, WebSocketSettings]
)
def test_every_field_of_a_configuration_has_a_row(kind):
    no_setting = {"file", "files", "document", "guest", "warnings", "ignored", "notified"}
    of_the_url = {"name", "host", "port", "limits", "tls", "proxy", "websocket", "only", "path"}
    assert {each.name for each in fields(kind)} - no_setting - of_the_url <= {
        row.name for row in options_of(kind)
    }


def test_camel_case():
    assert camel_case("ring_counts_paged") == "ringCountsPaged" and camel_case("user") == "user"
