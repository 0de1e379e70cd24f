"""TLS: OpenSSL contexts of an acceptor's settings and files, and connections that log why a handshake failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from OpenSSL import SSL
from OpenSSL.crypto import X509
from OpenSSL.crypto import Error as CryptoError
from service_identity import VerificationError
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Protocol
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from stompring.broker.clock import cancel
from stompring.errors import CertificateError
from stompring.security.accounts import subject_of
from stompring.security.certificates import Identity, read_certificates, read_identities
from stompring.session.outbox import printable
from stompring.settings.model import TLS_VERSIONS, ConnectorTls, Tls, frozen

from .protocol import HANDSHAKE_RECORD, PROXY_HEADER_START

#: Cipher suites of TLS 1.2 with forward secrecy and authenticated encryption. All suites of TLS 1.3 have both.
CIPHER_SUITES = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
)

#: Maximum number of characters that the log shows of the subject of a rejected certificate.
MAX_SUBJECT_LENGTH = 200

OPENSSL_VERSIONS = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}

#: SSL_MODE_ENABLE_PARTIAL_WRITE, which pyOpenSSL sets: a write ends after one record, even if its data is longer.
ENABLE_PARTIAL_WRITE = 1

_OPTIONS = (
    SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE | SSL.OP_NO_RENEGOTIATION | SSL.OP_SINGLE_ECDH_USE
)

#: The usual reasons for the rejection of a client's certificate, by OpenSSL's error numbers (x509_vfy.h).
_VERIFICATION = {
    9: "not yet valid",
    10: "expired",
    18: "self-signed and not in trustStorePath",
    19: "its chain ends in a certificate that is not in trustStorePath",
    20: "no issuer in trustStorePath",
    21: "no issuer in trustStorePath",
    26: "not valid for clients (extended key usage)",
}


@frozen
class TlsContext:
    """The certificates of an acceptor, and the OpenSSL context for handshakes.

    The context presents the first certificate, or the one for the server name that the client requests.
    """

    identities: tuple[Identity, ...]
    default: SSL.Context


def tls_context(tls: Tls, application: bytes | None = None) -> TlsContext:
    """Read the files of ``tls``, and create the contexts. ``application``: protocol for ALPN, None: no ALPN.

    Raises `CertificateError`.
    """
    identities = tuple(read_identities(tls.key_store_path, tls.key_path, tls.key_store_password))
    contexts = [_context(tls, identity, application) for identity in identities]
    by_name: dict[str, SSL.Context] = {}
    for identity, context in zip(identities, contexts, strict=True):
        for name in identity.names:
            by_name.setdefault(name, context)
    default = contexts[0]

    def choose(connection: SSL.Connection) -> None:
        server_name = (connection.get_servername() or b"").decode("ascii", "replace").lower().rstrip(".")
        _, _, parent = server_name.partition(".")
        selected = by_name.get(server_name) or by_name.get(f"*.{parent}")
        if selected is not None and selected is not default:
            connection.set_context(selected)

    default.set_tlsext_servername_callback(choose)
    return TlsContext(identities, default)


def _context(tls: Tls, identity: Identity, application: bytes | None) -> SSL.Context:
    context = new_context(SSL.TLS_SERVER_METHOD, _OPTIONS, tls)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # saves memory: idle connections have no buffers
    context.clear_mode(ENABLE_PARTIAL_WRITE)
    if application is not None:
        context.set_alpn_select_callback(
            lambda _, offered: application if application in offered else SSL.NO_OVERLAPPING_PROTOCOLS
        )
    use_identity(context, identity)
    if tls.asks_for_certificates:
        _ask_for_certificates(context, tls)
    return context


def new_context(method: int, options: int, tls: Tls | ConnectorTls) -> SSL.Context:
    """Create a context with the TLS versions and cipher suites of the settings. Raises `CertificateError`."""
    context = SSL.Context(method)
    context.set_options(options)
    versions = [OPENSSL_VERSIONS[name] for name in tls.enabled_protocols or TLS_VERSIONS]
    context.set_min_proto_version(min(versions))
    context.set_max_proto_version(max(versions))
    _choose_ciphers(context, tls.enabled_cipher_suites)
    return context


def use_identity(context: SSL.Context, identity: Identity) -> None:
    """Make a context present this certificate. Raises `CertificateError`."""
    try:
        context.use_certificate(identity.chain[0])
        for certificate in identity.chain[1:]:
            context.add_extra_chain_cert(certificate)
        context.use_privatekey(identity.key)  # type: ignore[arg-type]  # OpenSSL checks the type of the key
        context.check_privatekey()
    except (SSL.Error, TypeError, ValueError) as error:
        raise CertificateError(f"{identity.file}: not usable for TLS: {openssl_reasons(error)}") from None


def _choose_ciphers(context: SSL.Context, named: tuple[str, ...]) -> None:
    """Set the named cipher suites, or `CIPHER_SUITES`. Raises `CertificateError` for an unknown one."""
    # OpenSSL has a separate list for the suites of TLS 1.3, whose IANA names do not contain WITH
    newer = [name for name in named if name.startswith("TLS_") and "_WITH_" not in name]
    older = [name for name in named if name not in newer]
    scratch = SSL.Context(SSL.TLS_SERVER_METHOD)
    for name in named:  # one by one: OpenSSL ignores unknown names in a list
        choose = scratch.set_tls13_ciphersuites if name in newer else scratch.set_cipher_list
        try:
            choose(name.encode())
        except SSL.Error:
            raise CertificateError(f"enabledCipherSuites: OpenSSL does not have '{name}'") from None
    context.set_cipher_list(":".join(older or CIPHER_SUITES).encode())
    if newer:
        context.set_tls13_ciphersuites(":".join(newer).encode())


def _ask_for_certificates(context: SSL.Context, tls: Tls) -> None:
    path = tls.trust_store_path
    assert path is not None
    store = context.get_cert_store()
    assert store is not None
    try:
        for authority in read_certificates(path, tls.trust_store_password):
            context.add_client_ca(authority)
            store.add_cert(X509.from_cryptography(authority))
    except (SSL.Error, CryptoError) as error:
        raise CertificateError(f"{path}: not usable as trustStorePath: {openssl_reasons(error)}") from None
    required = SSL.VERIFY_FAIL_IF_NO_PEER_CERT if tls.need_client_auth else 0
    context.set_verify(SSL.VERIFY_PEER | required, _verified)
    # no resumed sessions: the client would not present its certificate again, which may have expired meanwhile
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    context.set_session_id(b"stompring")


def _verified(connection: SSL.Connection, certificate: Any, number: int, depth: int, right: int) -> bool:
    if not right:
        shown = printable(subject_of(certificate.to_cryptography()), MAX_SUBJECT_LENGTH)
        why = _VERIFICATION.get(number, f"OpenSSL verification error {number}")
        connection.get_app_data().verify_fault = f"client certificate {shown} rejected: {why}"
    return bool(right)


def openssl_reasons(error: Exception) -> str:
    """Return the reasons of an OpenSSL error as text."""
    entries = error.args[0] if isinstance(error, SSL.Error) and error.args else None
    if isinstance(entries, list):
        return "; ".join(str(entry[-1]) for entry in entries) or "no reason given"
    return str(error) or type(error).__name__


#: Seconds that a client has to read the last data after it has ended TLS.
LINGER = 5.0


#: Maximum bytes of data in one TLS record, and maximum bytes that a record has in addition to its data.
MAX_RECORD, RECORD_OVERHEAD = 16_384, 512

#: Bytes of data that are encrypted at once. Fewer bytes wait for the end of the round.
GATHERED = 4 * MAX_RECORD


class TlsConnection(TLSMemoryBIOProtocol):
    """A TLS connection of a client. It depends on private fields of Twisted's class for the state of the handshake.

    Twisted joins small writes in the next iteration of the reactor. This class joins them at the end of the round, and
    on a stock reactor writes immediately.
    """

    factory: TlsFactory
    verify_fault = ""  # reason for rejecting the client's certificate
    _first_bytes = b""
    _ended = False
    _timer: IDelayedCall | None = None

    def __init__(self, factory: TlsFactory, inner: IProtocol) -> None:
        super().__init__(factory, inner)  # type: ignore[no-untyped-call]
        self._parts: list[bytes] = []  # data to encrypt
        self._size = 0  # bytes of all parts together

    def dataReceived(self, data: bytes) -> None:
        if not self._first_bytes:
            self._first_bytes = data[:16]
        if self._handshakeDone and not self._appSendBuffer and not self._lostTLSConnection:
            self._read(data)
        else:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
        if self._lostTLSConnection and self._handshakeDone and not self._ended:
            self._end()

    def _read(self, data: bytes) -> None:
        """Decrypt ``data``, and pass all its records to the protocol in one call. Twisted passes them one by one."""
        tls = self.getHandle()  # type: ignore[no-untyped-call]
        tls.bio_write(data)
        records: list[bytes] = []
        ended, reason = False, None
        while not ended:
            try:
                records.append(tls.recv(MAX_RECORD))
            except SSL.WantReadError:
                break
            except SSL.ZeroReturnError:
                ended = True
            except SSL.Error:
                ended, reason = True, Failure()
        if records and not self._aborted:
            self.wrappedProtocol.dataReceived(b"".join(records))
        if ended and not self._lostTLSConnection:
            if reason is None:
                self._shutdownTLS()
            self._tlsShutdownFinished(reason)
        self._flushSendBIO()  # type: ignore[no-untyped-call]

    def write(self, data: bytes) -> None:
        """Encrypt ``data`` with all other data of this round."""
        if not self._handshakeDone:
            super().write(data)  # type: ignore[no-untyped-call]
        elif self._producer is not None or not self.disconnecting:
            self._parts.append(data)
            self._size += len(data)
            if self._size >= GATHERED:
                self._encrypt()
            elif len(self._parts) == 1:
                self.factory.at_round_end(self._encrypt)

    def _encrypt(self) -> None:
        """Encrypt the gathered data, and write all its records together. Twisted writes them one by one."""
        data = b"" if self._aborted else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if not data or self._lostTLSConnection:
            return
        if self._appSendBuffer:
            self._bufferedWrite(data)  # type: ignore[no-untyped-call]
            return
        tls = self.getHandle()  # type: ignore[no-untyped-call]
        try:
            tls.sendall(data)
        except SSL.WantReadError:
            self._bufferedWrite(data)  # type: ignore[no-untyped-call]
            return
        except SSL.Error:
            self._tlsShutdownFinished(Failure())
            return
        transport: Any = self.transport
        transport.write(tls.bio_read(len(data) + (len(data) // MAX_RECORD + 1) * RECORD_OVERHEAD))

    def _shutdownTLS(self) -> None:
        self._encrypt()
        super()._shutdownTLS()  # type: ignore[no-untyped-call]

    def _end(self) -> None:
        """End the protocol when the client has ended TLS, or violated it, even if TCP is still open.

        Twisted notifies the protocol only when TCP is closed, and a client that does not read can delay that without
        limit. All data for the client until then, such as messages of a subscription, would be lost.
        """
        self._ended = True
        inner, self.wrappedProtocol = self.wrappedProtocol, Protocol()
        self.unregisterProducer()  # type: ignore[no-untyped-call]
        self._timer = self.factory.reactor.callLater(LINGER, self.abortConnection)
        inner.connectionLost(self._reason or Failure(ConnectionDone()))

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        cancel(self._timer)
        cause: Failure = self._reason or reason
        peer = self.getPeer()  # type: ignore[no-untyped-call]
        if not self._handshakeDone and self._first_bytes:
            self.factory.failed(peer, f"TLS handshake failed: {self._why(cause)}")
        elif self._handshakeDone and cause.check(SSL.Error):
            self.factory.failed(peer, f"TLS error: {openssl_reasons(cause.value)}")  # type: ignore[arg-type]
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        self._producer = None  # breaks a reference cycle

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        # drop the traceback: its frames refer to this connection and to the reason, which is a reference cycle
        if reason is not None:
            reason.cleanFailure()
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call]

    def _why(self, cause: Failure) -> str:
        if PROXY_HEADER_START.match(self._first_bytes):
            return "unexpected PROXY header: set proxyProtocolEnabled=true to accept it"
        if not self._first_bytes.startswith(HANDSHAKE_RECORD):
            return f"no TLS; the first bytes are {self._first_bytes!r}"
        if self.verify_fault:
            return self.verify_fault
        if cause.check(SSL.Error):
            return openssl_reasons(cause.value)  # type: ignore[arg-type]
        return "closed by the client" if cause.check(ConnectionDone) else cause.getErrorMessage()

    def getPeerCertificate(self) -> Any:
        """Return the client's certificate, None if there is none or if the connection has ended."""
        gone = self.getHandle() is None  # type: ignore[no-untyped-call]
        return None if gone else super().getPeerCertificate()  # type: ignore[no-untyped-call]


@implementer(IOpenSSLServerConnectionCreator)
class TlsFactory(TLSMemoryBIOFactory):
    """The factory of `TlsConnection` around another factory."""

    protocol = TlsConnection
    noisy = False

    def __init__(
        self,
        wrapped: IProtocolFactory,
        context: Callable[[], TlsContext],
        failed: Callable[[IAddress, str], None],
        reactor: Any,
    ) -> None:
        super().__init__(self, isClient=False, wrappedFactory=wrapped)
        self.failed = failed
        self._context = context
        self.reactor = reactor
        self.at_round_end: Callable[[Callable[[], None]], None]
        self.at_round_end = getattr(reactor, "call_at_round_end", lambda call: call())

    def buildProtocol(self, addr: IAddress | None) -> TlsConnection | None:  # type: ignore[override]
        inner = self.wrappedFactory.buildProtocol(addr)
        return None if inner is None else TlsConnection(self, inner)

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        # the current context: certificates may have been reloaded since the last connection
        connection = SSL.Connection(self._context().default, None)
        connection.set_app_data(protocol)
        connection.set_accept_state()
        return connection


# ---- connections to other brokers


def client_context(tls: ConnectorTls) -> SSL.Context:
    """Return the OpenSSL context of a connector. Raises `CertificateError`."""
    context = new_context(SSL.TLS_CLIENT_METHOD, SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION, tls)
    if tls.trust_store_path is None:
        context.set_default_verify_paths()
    else:
        store = context.get_cert_store()
        assert store is not None
        for authority in read_certificates(tls.trust_store_path, tls.trust_store_password):
            store.add_cert(X509.from_cryptography(authority))
    context.set_verify(SSL.VERIFY_PEER)
    if tls.key_store_path:
        identity, *_ = read_identities(tls.key_store_path, tls.key_path, tls.key_store_password)
        use_identity(context, identity)
    return context


def is_certified(handle: SSL.Connection, name: str) -> bool:
    """Return whether the certificate of the peer is for ``name``, a host name or an address."""
    try:
        (verify_ip_address if _is_address(name) else verify_hostname)(handle, name)
    except VerificationError:
        return False
    return True


def _is_address(name: str) -> bool:
    return isIPAddress(name) or isIPv6Address(name)


@implementer(IOpenSSLClientConnectionCreator, IStreamClientEndpoint)
@dataclass(eq=False)
class TlsEndpoint:
    """TLS over another endpoint. ``name`` is sent to the server as SNI, if it is not an address.

    Twisted's function for this does not work if its module was imported in `without_openssl`.
    """

    endpoint: IStreamClientEndpoint
    name: str
    context: SSL.Context

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return self.endpoint.connect(TLSMemoryBIOFactory(self, True, protocolFactory))

    def clientConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        connection = SSL.Connection(self.context, None)
        connection.set_connect_state()
        if not _is_address(self.name):
            connection.set_tlsext_host_name(self.name.encode("idna"))
        return connection
