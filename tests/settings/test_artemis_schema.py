"""The compatibility table against Artemis itself: its schema and its URL parameters."""

import re

import pytest
from lxml import etree

from stompring.settings import urls
from stompring.settings.artemis import ACCEPTOR_PARAMETERS, CONNECTOR_PARAMETERS, OLD_ELEMENT_NAMES, SECTIONS
from stompring.settings.document import root_rules
from stompring.settings.urls import LISTENER_PARAMETERS, OLD_PARAMETER_NAMES, STOMP_PARAMETERS

from ..artemis import jar_entry, java_class, needs_artemis
from ..docs import artemis_reference

XS = "{http://www.w3.org/2001/XMLSchema}"
CORE = root_rules()["configuration"].children["core"]

#: Names of versions before 2.44, and of the configuration around <core>, which this schema does not have.
EARLIER = {
    "configuration": {"core", "jms", "server"},
    "core": {
        "broadcast-group-security", "check-for-active-server", "journal-max-atticfiles", "literal-page-folders",
        "lock-coordinators", "max-saved-replicated-journals-size", "remoting-interceptors", "resolveProtocols",
    },
    "address-setting": {"intermediate-message-buffer-initial-size"},
    "queue": {"auto-delete", "auto-delete-delay", "auto-delete-message-count"},
}  # fmt: skip


class Schema:
    """artemis-configuration.xsd, as the paths of all elements and attributes below ``core``."""

    def __init__(self, data):
        top = list(etree.fromstring(data).iterchildren("*"))
        self._types = {each.get("name"): each for each in top if each.tag == f"{XS}complexType"}
        self._elements = {each.get("name"): each for each in top if each.tag == f"{XS}element"}
        self._groups = {
            each.get("name"): each for each in top if each.tag in (f"{XS}group", f"{XS}attributeGroup")
        }

    def paths(self):
        """Every path, from ``core`` on. A type that contains itself is followed once."""
        yield from self._element(self._elements["core"], (), ())

    def _element(self, element, above, seen):
        reference = element.get("ref")
        if reference is not None:
            element = self._elements[_local(reference)]
        if element.get("abstract") == "true":
            for other in self._elements.values():
                if other.get("substitutionGroup") == element.get("name"):
                    yield from self._element(other, above, seen)
            return
        path = (*above, element.attrib["name"])
        yield path
        kind = element.find(f"{XS}complexType")
        if kind is None:
            kind = self._types.get(_local(element.get("type")))
        if kind is not None and kind not in seen:
            yield from self._content(kind, path, (*seen, kind))

    def _content(self, node, path, seen):
        for child in node.iterchildren("*"):
            if child.tag == f"{XS}element":
                yield from self._element(child, path, seen)
            elif child.tag == f"{XS}attribute":
                yield (*path, child.get("name") or child.get("ref"))
            elif child.tag in (f"{XS}group", f"{XS}attributeGroup"):
                # xml:specialAttrs is of XML itself
                group = self._groups.get(_local(child.get("ref")))
                yield from () if group is None else self._content(group, path, seen)
            else:
                base = self._types.get(_local(child.get("base")))
                yield from () if base is None else self._content(base, path, seen)
                yield from self._content(child, path, seen)


def _local(name):
    return (name or "").rpartition(":")[2]


@pytest.fixture(scope="module")
def paths():
    return list(Schema(jar_entry("artemis-server", "schema/artemis-configuration.xsd")).paths())


def is_covered(path):
    """Whether each name of the path is supported, down to the whole path or to a row, which holds for all below it."""
    rule = CORE
    for parent, name in zip(path, path[1:], strict=False):
        if name in SECTIONS.get(parent, ()) or (parent, name) in OLD_ELEMENT_NAMES:
            return True
        if name in rule.attributes:
            return name == path[-1]
        if name not in rule.children:
            return False
        rule = rule.children[name]
    return True


@needs_artemis
def test_the_table_has_every_element_and_attribute_of_the_schema(paths):
    assert len(paths) > 1000 and ("core", "addresses", "address", "anycast", "queue", "ring-size") in paths
    assert [path for path in paths if not is_covered(path)] == []


@needs_artemis
def test_the_page_has_the_names_of_the_schema_and_no_others(paths):
    of_artemis = {}
    for path in paths:
        if len(path) > 1:
            of_artemis.setdefault(path[-2], set()).add(path[-1])
    for parent, rows in artemis_reference.elements().items():
        documented = set(rows) - EARLIER.get(parent, set())
        assert documented <= of_artemis.get(parent, set()), f"not in Artemis's schema: <{parent}>"


def acceptor_parameters():
    """Names with a row or with support."""
    return {
        *ACCEPTOR_PARAMETERS, *STOMP_PARAMETERS, *LISTENER_PARAMETERS, *OLD_PARAMETER_NAMES, "protocols",
    }  # fmt: skip


#: Constants that are no parameters: defaults, headers of HTTP, the value of a parameter.
OTHERS = ("DEFAULT_", "NETTY_HTTP_HEADER_PREFIX", "OPENSSL_PROVIDER")

#: Parameters that only an acceptor has, or only a connector.
OF_ACCEPTORS = re.compile(
    "autoStart|backlog|clusterConnection|connectionTtl.*|connectionsAllowed|directDeliver|disableStompServerHeader"
    "|heartBeatToConnectionTtlModifier|httpResponseTime|httpServerScanPeriod|needClientAuth|protocols?"
    "|proxyProtocolEnabled|quietPeriod|router|shutdownTimeout|sslAutoReload|stomp.*|wantClientAuth|webSocket.*"
)
OF_CONNECTORS = re.compile("socks.*")


@needs_artemis
def test_the_table_has_every_parameter_of_transport_constants():
    constants = java_class(
        "artemis-core-client", "org.apache.activemq.artemis.core.remoting.impl.netty.TransportConstants"
    ).constants
    names = {value for name, value in constants.items() if not name.startswith(OTHERS)}
    assert {"useEpoll", "keyStorePath", "stompConsumerWindowSize"} <= names
    assert {name for name in names - acceptor_parameters() if not OF_CONNECTORS.fullmatch(name)} == set()
    of_connectors = {*urls.CONNECTOR_PARAMETERS, *CONNECTOR_PARAMETERS}
    assert {name for name in names - of_connectors if not OF_ACCEPTORS.fullmatch(name)} == set()


MANAGERS = [
    ("artemis-amqp-protocol", "org.apache.activemq.artemis.protocol.amqp.broker.ProtonProtocolManager"),
    ("artemis-mqtt-protocol", "org.apache.activemq.artemis.core.protocol.mqtt.MQTTProtocolManager"),
    (
        "artemis-openwire-protocol",
        "org.apache.activemq.artemis.core.protocol.openwire.OpenWireProtocolManager",
    ),
    ("artemis-hornetq-protocol", "org.apache.activemq.artemis.core.protocol.hornetq.HornetQProtocolManager"),
    ("artemis-stomp-protocol", "org.apache.activemq.artemis.core.protocol.stomp.StompProtocolManager"),
    ("artemis-server", "org.apache.activemq.artemis.core.protocol.core.impl.CoreProtocolManager"),
]


@needs_artemis
@pytest.mark.parametrize("jar, name", MANAGERS, ids=[name.rpartition(".")[2] for _, name in MANAGERS])
def test_the_table_has_every_parameter_of_the_protocols(jar, name):
    """A parameter of an acceptor's URL that is none of the transport sets a property of the protocol managers."""
    setters = [method[3:] for method in java_class(jar, name).methods if method.startswith("set")]
    assert {each[0].lower() + each[1:] for each in setters} - acceptor_parameters() == set()
