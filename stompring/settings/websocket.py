"""What an acceptor does with WebSocket, as frozen data. No parsing and no other room of the house, as in `model`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebSocketSettings:
    """STOMP over WebSocket on one acceptor. What has a parameter is called as that, in snake_case."""

    only: bool = False  # ws://: nothing else is spoken here
    path: str = ""  # of a ws:// URL; empty: any
    web_socket_upgrade: bool = (
        True  # what begins with GET may become a WebSocket where STOMP is spoken plainly
    )
    web_socket_max_frame_payload_length: int = -1
    web_socket_encoder_type: str = "binary"
    web_socket_compression_supported: bool = False
    web_socket_allowed_origins: tuple[
        str, ...
    ] = ()  # normal (`settings.origin`); the broker's own host is another
