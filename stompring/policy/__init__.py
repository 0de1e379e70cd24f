"""Address policies: what may be decided by others than the broker, and how they are written.

``from stompring.policy import AddressPolicy`` and the names below are all that a policy needs; docs/plugins.md tells
how one is written, tested and configured.
"""

from stompring.broker.hooks import Subscriber
from stompring.broker.offer import Offer

from .api import (
    ACCEPT,
    BLOCK,
    DROP,
    DROP_OLDEST,
    FAIL,
    PAGE,
    AddressPolicy,
    ChangeHeaders,
    FullVerdict,
    Redirect,
    Refuse,
    Verdict,
    Wait,
)
from .parameters import Bytes, Milliseconds, parameter
from .views import AddressView, MessageView, QueueView

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
