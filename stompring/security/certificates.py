"""Certificates and private keys in PEM files and Java keystores, the users of client certificates, and self-signed
certificates for new instances.

A file that cannot be used raises `CertificateError`, whose text begins with the file's name.

Java keystores, JKS and PKCS12, have private keys with their chains, and trusted certificates, as in Artemis. A JKS file
is a list of entries and a digest of them; a stream of SHA-1 digests hides each private key, without a standard
encryption. The format is `KeyStore` of Java 1.2; PKCS12 is RFC 7292.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stompring.errors import CertificateError, ConfigurationError

from .accounts import KEY_SUFFIX, SUFFIX, WatchedFile, check_name, name_of, subject_of

_JCEKS = b"\xce\xce\xce\xce"
_DER = b"\x30"


@dataclass(frozen=True)
class Identity:
    """A certificate with its private key and its chain, from one file."""

    file: str
    chain: tuple[x509.Certificate, ...]  # leaf certificate first
    key: PrivateKeyTypes = field(repr=False)

    @property
    def subject(self) -> str:
        """Subject of the certificate (RFC 4514)."""
        return subject_of(self.chain[0])

    @property
    def names(self) -> tuple[str, ...]:
        """Host names and addresses in subjectAltName, else the common name; in lower case."""
        try:
            found = self.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (x509.ExtensionNotFound, ValueError):
            common = self.chain[0].subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
            return tuple(str(name.value).lower() for name in common[:1])
        hosts = [name.lower() for name in found.get_values_for_type(x509.DNSName)]
        return (*hosts, *(str(address) for address in found.get_values_for_type(x509.IPAddress)))

    @property
    def not_before(self) -> datetime:
        """Start of validity."""
        return self.chain[0].not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """End of validity of the whole chain."""
        return min(certificate.not_valid_after_utc for certificate in self.chain)

    def describe(self) -> str:
        """Return subject, hosts and end of validity as text."""
        names = ", ".join(self.names) or "no host"
        return f"certificate {self.subject} for {names}, until {self.not_after:%Y-%m-%d %H:%M} UTC"

    def expiry_warning(self, now: float, notice: float) -> str | None:
        """Return a warning if the certificate is not valid at ``now`` (epoch s), or ends within ``notice`` seconds."""
        shown = f"certificate {self.subject} ({self.file})"
        remaining = self.not_after.timestamp() - now
        if remaining <= 0:
            return f"{shown} has expired on {self.not_after:%Y-%m-%d %H:%M} UTC"
        if self.not_before.timestamp() > now:
            return f"{shown} is not valid before {self.not_before:%Y-%m-%d %H:%M} UTC"
        if remaining < notice:
            return (
                f"{shown} expires in {remaining // 86_400:.0f} days, on {self.not_after:%Y-%m-%d %H:%M} UTC"
            )
        return None


def read_identities(paths: Sequence[str], keys: Sequence[str], password: str | None) -> list[Identity]:
    """Read the identities in all ``paths``, in order. A directory stands for its ``.pem`` files, sorted by name.

    ``keys``: the private key file of each path. If it is empty, a private key is in the file of its certificate, or in
    a file beside it with the suffix ``.key``. Returns at least one identity. Raises `CertificateError`.
    """
    found: list[Identity] = []
    for index, path in enumerate(paths):
        own = keys[index] if keys else None
        for file in _files(Path(path), own):
            data = _read(file)
            if own is None and is_keystore(data):
                store = _keystore(file, data, password, "keyStorePassword")
                if not store.keys:
                    raise CertificateError(f"{file}: no private key in this keystore")
                found += [Identity(str(file), chain, key) for key, chain in store.keys]
            else:
                found.append(_identity(file, own, password))
    return found


def _keystore(file: str | Path, data: bytes, password: str | None, parameter: str) -> Keystore:
    if password is None:
        raise CertificateError(f"{file}: Java keystore: set {parameter}")
    try:
        return read_keystore(data, password)
    except KeystoreError as error:
        raise CertificateError(f"{file}: {error}") from None


def read_certificates(path: str, password: str | None = None) -> list[x509.Certificate]:
    """Read the certificates of a file, or the trusted certificates of a Java keystore. Returns at least one. Raises
    `CertificateError`.
    """
    data = _read(Path(path))
    if is_keystore(data):
        trusted = _keystore(path, data, password, "trustStorePassword").trusted
        if not trusted:
            raise CertificateError(f"{path}: no trusted certificate in this keystore")
        return trusted
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise CertificateError(f"{path}: {_not_pem(data) or f'not a valid certificate: {error}'}") from None


def _files(path: Path, key: str | None) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob(f"*{SUFFIX}"))
    if not files:
        raise CertificateError(f"{path}: no {SUFFIX} file in this directory")
    if key is not None:
        raise CertificateError(
            f"{path}: keyPath cannot be used with a directory: put keys into or beside its {SUFFIX} files"
        )
    return files


def _identity(file: Path, key_file: str | None, password: str | None) -> Identity:
    chain = read_certificates(str(file))
    beside = file.with_suffix(KEY_SUFFIX)
    source = file if key_file is None else Path(key_file)
    data = _read(source)
    if key_file is None and b"PRIVATE KEY-----" not in data:
        if not beside.exists():
            raise CertificateError(
                f"{file}: no private key in the file, and no file {beside.name} beside it: set keyPath"
            )
        source, data = beside, _read(beside)
    key = _key(source, data, password)
    if _public(key) != _public(chain[0]):
        raise CertificateError(f"{source}: private key does not match the certificate in {file}")
    return Identity(str(file), tuple(chain), key)


def _key(file: Path, data: bytes, password: str | None) -> PrivateKeyTypes:
    secret = None if password is None else password.encode()
    try:
        return load_pem_private_key(data, secret)
    except TypeError:
        if secret is None:
            raise CertificateError(f"{file}: private key is encrypted: set keyStorePassword") from None
        return load_pem_private_key(data, None)  # this key is not encrypted: the password is for other keys
    except (ValueError, UnsupportedAlgorithm) as error:
        reason = "wrong password or damaged file" if secret is not None else str(error)
        why = _not_pem(data) or f"private key cannot be read: {reason}"
        raise CertificateError(f"{file}: {why}") from None


def _public(holder: PrivateKeyTypes | x509.Certificate) -> bytes:
    return holder.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror or error}") from None


def _not_pem(data: bytes) -> str | None:
    if b"-----BEGIN" in data:
        return None
    if data.startswith(_JCEKS):
        return "keystore of type JCEKS: convert it to PKCS12 with 'keytool -importkeystore'"
    if data.startswith(_DER):
        return "DER, not PEM: convert it with 'openssl x509'"
    return "not a PEM file"


CERTIFICATE_USERS_FILE = "certificate users file"

_COMMA = re.compile(r"(?<!\\),")


class CertificateUsers(WatchedFile[Mapping[str, str]]):
    """The users in one file, by the subject of their certificate. The file is read again when it has changed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file at ``path``. Raises ConfigurationError, with file and line, for an invalid line."""
        super().__init__(path, CERTIFICATE_USERS_FILE, parse_certificate_users)

    def user_of(self, subject: str) -> str | None:
        """Return the user of a certificate subject, None for an unknown subject."""
        return self.content.get(normalized(subject))


def parse_certificate_users(lines: list[str], file: str) -> Mapping[str, str]:
    """Return the users by subject. Raises ConfigurationError with the invalid line."""
    users: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name = name_of(line)
        if name is None:
            continue
        try:
            subject = _subject_of(line, name)
            for each in (f"user {name!r}", f"certificate {subject!r}"):
                if each in numbers:
                    raise ValueError(f"{each} is already in line {numbers[each]}")
                numbers[each] = number
        except ValueError as error:
            raise ConfigurationError(str(error), file, number) from None
        users[subject] = name
    return users


def _subject_of(line: str, name: str) -> str:
    check_name(name)
    subject = line.partition("=")[2].strip()
    if subject.startswith("/"):
        raise ValueError(
            f"user {name!r}: write the subject itself, as CN=name, O=company; patterns are not supported"
        )
    if "=" not in subject:
        raise ValueError("a line must be 'user = subject of the certificate', or begin with '#'")
    return normalized(subject)


def normalized(subject: str) -> str:
    """Remove white space around commas and equals signs of a subject (RFC 4514). Attribute types become upper case."""
    parts = (part.partition("=") for part in _COMMA.split(subject))
    return ",".join(f"{kind.strip().upper()}{equals}{value.strip()}" for kind, equals, value in parts)


JKS = b"\xfe\xed\xfe\xed"

_KEY_ENTRY, _TRUSTED_ENTRY = 1, 2
_DIGEST_SIZE = 20
#: Text between the password and the content in the input of a JKS file's digest.
_WHITENER = b"Mighty Aphrodite"


class KeystoreError(Exception):
    """A keystore cannot be read. The text is the reason, without the name of the file."""


class Keystore(NamedTuple):
    """The contents of a keystore."""

    # private keys, each with its chain, the leaf certificate first
    keys: list[tuple[PrivateKeyTypes, tuple[x509.Certificate, ...]]]
    trusted: list[x509.Certificate]


def is_keystore(data: bytes) -> bool:
    """Return whether a file is a Java keystore. A DER certificate is not, but begins with the same byte as PKCS12."""
    if not data.startswith(_DER):
        return data.startswith(JKS)
    try:
        x509.load_der_x509_certificate(data)
    except ValueError:
        return True
    return False


def read_keystore(data: bytes, password: str) -> Keystore:
    """Read a keystore. Raises `KeystoreError`."""
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
        reader.text()  # skip the alias
        reader.take(8)  # skip the creation time
        if kind == _KEY_ENTRY:
            key = load_der_private_key(_private_key(reader.take(reader.number(4)), secret), None)
            chain = tuple(_certificate(reader, version) for _ in range(reader.number(4)))
            store.keys.append((key, chain))
        elif kind == _TRUSTED_ENTRY:
            store.trusted.append(_certificate(reader, version))
        else:
            raise ValueError(f"an entry of type {kind} is unknown")
    return store


def _certificate(reader: _Reader, version: int) -> x509.Certificate:
    if version == 2:
        reader.text()  # skip the type of the certificate
    data = reader.take(reader.number(4))
    try:
        return x509.load_der_x509_certificate(data)
    except ValueError:
        raise ValueError("a certificate in it is not valid") from None


def _private_key(sealed: bytes, secret: bytes) -> bytes:
    """Decrypt an EncryptedPrivateKeyInfo of Sun's own algorithm: salt, encrypted key, digest. Return the PKCS8 key."""
    outer, _ = _element(sealed, 0, 0x30)
    algorithm, at = _element(outer, 0, 0x30)
    if not algorithm.startswith(_SUN_ALGORITHM):
        raise ValueError("a private key has an unknown encryption")
    hidden, _ = _element(outer, at, 0x04)
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


#: Object identifier of Sun's algorithm in DER: 1.3.6.1.4.1.42.2.17.1.1.
_SUN_ALGORITHM = bytes.fromhex("060a2b060104012a02110101")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _element(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """Return the value of a DER element, and the offset of its end."""
    if data[at] != tag:
        raise ValueError("a private key is not DER")
    size, at = data[at + 1], at + 2
    if size >= 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[at : at + count], "big"), at + count
    return data[at : at + size], at + size


@dataclass
class _Reader:
    """Reads values in the format of Java's ``DataOutputStream``."""

    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        at = self.at
        self.at = at + size
        if self.at > len(self.data):
            raise ValueError("the file is truncated")
        return self.data[at : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> bytes:
        return self.take(self.number(2))


def self_signed(names: Sequence[str], days: int) -> tuple[bytes, bytes]:
    """Create a certificate for host names and IP addresses, valid for ``days``, and its key (P-256); both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # an hour earlier, because clocks of clients may be slow
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        # the certificate signs no other certificates
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return (
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
