"""A broker.xml for tests that start a broker: what the shipped one says, on free ports, with a test's own additions."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

#: Address-settings by match, then by element.
Settings = Mapping[str, Mapping[str, object]]

PREFIXES = "anycastPrefix=/queue/,queue/;multicastPrefix=/topic/,topic/"

EVERYBODY = "everybody"

PERMISSIONS = (
    "send",
    "consume",
    "browse",
    "createAddress",
    "deleteAddress",
    "createDurableQueue",
    "deleteDurableQueue",
    "createNonDurableQueue",
    "deleteNonDurableQueue",
    "manage",
    "view",
    "edit",
)

#: As shipped: any client's first try works. Without them Artemis's defaults hold.
SHIPPED: Settings = {
    "#": {
        "default-address-routing-type": "ANYCAST",
        "default-queue-routing-type": "ANYCAST",
        "auto-delete-queues": "false",
        "auto-delete-addresses": "false",
    }
}


def broker_xml(
    *,
    settings: Settings | None = None,
    addresses: str = "",
    parameters: str = "",
    core: str = "",
    acceptors: str = "",
    secure: bool = False,
    permissions: str | None = None,
    base: Settings = SHIPPED,
) -> str:
    """A document with one STOMP and one HTTP acceptor, each on a free port of the loopback interface.

    ``parameters`` are more acceptor parameters (``name=value;…``), ``addresses`` is the inside of ``<addresses>``,
    ``core`` more elements of ``<core>``, ``acceptors`` more acceptors, ``permissions`` the inside of
    ``<security-settings>``: where it is not said and security is on, the role `EVERYBODY` may do everything.
    ``settings`` are added to ``base``, element by
    element. What stands for ``address-policy`` there is XML as it is.
    """
    merged = {match: dict(elements) for match, elements in base.items()}
    for match, elements in (settings or {}).items():
        merged.setdefault(match, {}).update(elements)
    if secure:
        core += (
            f"<security-settings>{everything() if permissions is None else permissions}</security-settings>"
        )
    query = escape(f"{PREFIXES};{parameters}".rstrip(";"))
    return f"""<configuration><core>
<security-enabled>{str(secure).lower()}</security-enabled>
{core}
<acceptors>
<acceptor name="stomp">tcp://127.0.0.1:0?{query}</acceptor>
<acceptor name="http">http://127.0.0.1:0</acceptor>
{acceptors}
</acceptors>
<address-settings>{"".join(_setting(match, merged[match]) for match in merged)}</address-settings>
<addresses>{addresses}</addresses>
</core></configuration>
"""


def everything(match: str = "#", role: str = EVERYBODY) -> str:
    """A ``<security-setting>`` by which a role may do everything."""
    return permitted(match, {kind: role for kind in PERMISSIONS})


def permitted(match: str, roles: Mapping[str, str]) -> str:
    """A ``<security-setting>``: the roles that have each permission."""
    inside = "".join(f'<permission type="{kind}" roles="{names}"/>' for kind, names in roles.items())
    return f'<security-setting match="{escape(match)}">{inside}</security-setting>'


def _setting(match: str, elements: Mapping[str, object]) -> str:
    written = dict(elements)
    policies = str(written.pop("address-policy", ""))  # elements as they are
    inside = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in written.items()) + policies
    return f'\n<address-setting match="{escape(match)}">{inside}</address-setting>'


def anycast(name: str, attributes: str = "", inside: str = "", queue: str | None = None) -> str:
    """An ``<address>`` with one anycast queue, of the same name where ``queue`` names no other."""
    return _address("anycast", name, attributes, inside, queue)


def multicast(name: str, attributes: str = "", inside: str = "", queue: str | None = None) -> str:
    """As `anycast`, with a multicast queue."""
    return _address("multicast", name, attributes, inside, queue)


def _address(kind: str, name: str, attributes: str, inside: str, queue: str | None) -> str:
    one = f'<queue name="{queue or name}" {attributes}>{inside}</queue>'
    return f'<address name="{name}"><{kind}>{one}</{kind}></address>'
