"""What an acceptor says about TLS, as frozen data: no parsing and no other room of the house, as in `model`."""

from __future__ import annotations

from dataclasses import dataclass, field

#: The versions that are spoken, the older first. What is older than these is not safe.
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS on one acceptor. Field names are the parameters of its URL in snake_case, paths as they are opened."""

    key_store_path: tuple[str, ...] = ()  # files with certificate chains, and directories of such
    key_path: tuple[
        str, ...
    ] = ()  # of each of those files the private key; () where they lie in or beside them
    key_store_password: str | None = field(default=None, repr=False)  # of private keys that are encrypted
    trust_store_path: str | None = None  # whose client certificates are taken
    need_client_auth: bool = False
    want_client_auth: bool = False
    enabled_protocols: tuple[str, ...] = ()  # of TLS_VERSIONS; () for all of them
    enabled_cipher_suites: tuple[str, ...] = ()  # names of OpenSSL or of IANA; () for ours
    ssl_auto_reload: bool = False

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients may, or must, show a certificate."""
        return self.need_client_auth or self.want_client_auth
