"""Address policies: plugins that decide about messages, rings and subscriptions of an address.

The names exported here are the public API for policies; docs/plugins.md documents how to write, test and configure one.
"""

from stompring.broker.ports import Offer, Subscriber

from .api import (
    ACCEPT,
    BLOCK,
    DROP,
    DROP_OLDEST,
    FAIL,
    PAGE,
    AddressPolicy,
    Bytes,
    ChangeHeaders,
    FullVerdict,
    Milliseconds,
    Redirect,
    Refuse,
    Verdict,
    Wait,
    parameter,
)
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
