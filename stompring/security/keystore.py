"""Java keystores, JKS and PKCS12, as Artemis reads them: private keys with their chains, and trusted certificates.

A JKS file is a list of entries and a digest of them; a private key in it is hidden by a stream of SHA-1 digests, not
encrypted by any standard. The format is `KeyStore` of Java 1.2; PKCS12 is RFC 7292.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_der_private_key, pkcs12

JKS = b"\xfe\xed\xfe\xed"
_DER = b"\x30"

_KEY_ENTRY, _TRUSTED_ENTRY = 1, 2
_DIGEST_SIZE = 20
#: What the digest of a JKS file begins with after the password.
_WHITENER = b"Mighty Aphrodite"


class KeystoreError(Exception):
    """A keystore cannot be read; the text says why, without the name of the file."""


class Keystore(NamedTuple):
    """What is in a keystore."""

    keys: list[tuple[PrivateKeyTypes, tuple[x509.Certificate, ...]]]  # each with its chain, leaf first
    trusted: list[x509.Certificate]


def is_keystore(data: bytes) -> bool:
    """Whether a file is a Java keystore. A DER certificate begins as PKCS12 does, and is not one."""
    if data.startswith(JKS):
        return True
    if not data.startswith(_DER):
        return False
    try:
        x509.load_der_x509_certificate(data)
    except ValueError:
        return True
    return False


def read_keystore(data: bytes, password: str | None) -> Keystore:
    """The contents of a file. Raises `KeystoreError`."""
    if password is None:
        raise KeystoreError("a Java keystore needs a password")
    try:
        return _read_jks(data, password) if data.startswith(JKS) else _read_pkcs12(data, password)
    except (ValueError, IndexError, UnsupportedAlgorithm) as error:
        raise KeystoreError(f"wrong password or damaged keystore: {error}") from None


def _read_pkcs12(data: bytes, password: str) -> Keystore:
    found = pkcs12.load_pkcs12(data, password.encode())
    others = [each.certificate for each in found.additional_certs]
    if found.key is None or found.cert is None:
        return Keystore([], [*([] if found.cert is None else [found.cert.certificate]), *others])
    chain = [found.cert.certificate]
    while issuer := next(
        (each for each in others if each.subject == chain[-1].issuer and each not in chain), None
    ):
        chain.append(issuer)
    return Keystore([(found.key, tuple(chain))], [each for each in others if each not in chain])


def _read_jks(data: bytes, password: str) -> Keystore:
    secret = password.encode("utf-16-be")
    content, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if _sha1(secret + _WHITENER + content) != digest:
        raise ValueError("the digest does not match")
    reader = _Reader(content)
    reader.take(len(JKS))
    version = reader.number(4)
    if version not in (1, 2):
        raise ValueError(f"version {version} is unknown")
    store = Keystore([], [])
    for _ in range(reader.number(4)):
        kind = reader.number(4)
        reader.text()  # the alias
        reader.take(8)  # the time at which it was made
        if kind == _KEY_ENTRY:
            key = load_der_private_key(_private_key(reader.take(reader.number(4)), secret), None)
            store.keys.append((key, tuple(_chain(reader, version))))
        elif kind == _TRUSTED_ENTRY:
            store.trusted.append(_certificate(reader, version))
        else:
            raise ValueError(f"an entry of type {kind} is unknown")
    return store


def _chain(reader: _Reader, version: int) -> Iterator[x509.Certificate]:
    for _ in range(reader.number(4)):
        yield _certificate(reader, version)


def _certificate(reader: _Reader, version: int) -> x509.Certificate:
    if version == 2:
        reader.text()  # its type
    data = reader.take(reader.number(4))
    try:
        return x509.load_der_x509_certificate(data)
    except ValueError:
        raise ValueError("a certificate in it is not valid") from None


def _private_key(sealed: bytes, secret: bytes) -> bytes:
    """PKCS8 out of an EncryptedPrivateKeyInfo of Sun's own algorithm: salt, key, digest."""
    outer = _element(sealed, 0x30)
    algorithm, at = _element_at(outer, 0, 0x30)
    if not algorithm.startswith(_SUN_ALGORITHM):
        raise ValueError("a private key has an unknown encryption")
    hidden, _ = _element_at(outer, at, 0x04)
    salt, body, digest = hidden[:_DIGEST_SIZE], hidden[_DIGEST_SIZE:-_DIGEST_SIZE], hidden[-_DIGEST_SIZE:]
    stream = bytearray()
    block = salt
    while len(stream) < len(body):
        block = _sha1(secret + block)
        stream += block
    plain = bytes(one ^ other for one, other in zip(body, stream, strict=False))
    if _sha1(secret + plain) != digest:
        raise ValueError("a private key has another password than the keystore")
    return plain


#: 1.3.6.1.4.1.42.2.17.1.1 in DER.
_SUN_ALGORITHM = bytes.fromhex("060a2b060104012a02110101")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _element(data: bytes, tag: int) -> bytes:
    return _element_at(data, 0, tag)[0]


def _element_at(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """The value of a DER element, and where it ends."""
    if data[at] != tag:
        raise ValueError("a private key is not DER")
    size, at = data[at + 1], at + 2
    if size >= 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[at : at + count], "big"), at + count
    return data[at : at + size], at + size


class _Reader:
    """Bytes in the format of Java's ``DataOutputStream``."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        at = self._at
        self._at = at + size
        if self._at > len(self._data):
            raise ValueError("the file is truncated")
        return self._data[at : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> bytes:
        return self.take(self.number(2))
