"""Address policies: what may be decided by others than the broker, and how they are written.

``from stompring.policy import AddressPolicy`` and the names below are all that a policy needs; docs/plugins.md tells
how one is written, tested and configured.
"""

from stompring.broker.hooks import Subscriber
from stompring.broker.offer import Offer

from .address_policy import AddressPolicy
from .address_view import AddressView
from .message_view import MessageView
from .parameter import Bytes, Milliseconds, parameter
from .queue_view import QueueView
from .verdict import (
    ACCEPT,
    BLOCK,
    DROP,
    DROP_OLDEST,
    FAIL,
    PAGE,
    ChangeHeaders,
    FullVerdict,
    Redirect,
    Refuse,
    Verdict,
    Wait,
)

__all__ = [
    "ACCEPT",
    "BLOCK",
    "DROP",
    "DROP_OLDEST",
    "FAIL",
    "PAGE",
    "AddressPolicy",
    "AddressView",
    "Bytes",
    "ChangeHeaders",
    "FullVerdict",
    "MessageView",
    "Milliseconds",
    "Offer",
    "QueueView",
    "Redirect",
    "Refuse",
    "Subscriber",
    "Verdict",
    "Wait",
    "parameter",
]
