"""Certificates for tests, made when they are needed: an authority of one's own, and what it signs."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

#: What a client of 127.0.0.1 or localhost wants to see.
HERE = ("localhost", "127.0.0.1")


def name_of(common: str) -> x509.Name:
    """A subject as Java and OpenSSL would have it, less specific parts first."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


class Authority:
    """Signs certificates and writes them, in PEM, into a directory. One with a ``parent`` is vouched for by that."""

    def __init__(self, directory: Path, name: str = "authority", parent: Authority | None = None) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = name_of(name)
        self.certificate = (parent or self)._sign(self._name, self._key, -1.0, 3650.0, authority=True)
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(pem(self.certificate))

    def issue(
        self,
        file: str,
        names: Sequence[str] = HERE,
        *,
        common: str = "broker",
        begin: float = -1.0,
        days: float = 365.0,
        client: bool = False,
        password: str | None = None,
        key_apart: bool = False,
        key: Key | None = None,
    ) -> Path:
        """A certificate with its key in ``file``; ``begin`` and ``days`` are days from now on.

        ``key_apart``: the key is beside it, in a file that ends in ``.key``.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        signed = self._sign(name_of(common), key, begin, days, names=names, client=client)
        path = self.directory / file
        hidden: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        )
        written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
        path.write_bytes(pem(signed) + (b"" if key_apart else written))
        if key_apart:
            path.with_suffix(".key").write_bytes(written)
        return path

    def trusting(self, client: Path | None = None) -> ssl.SSLContext:
        """The context of a client that trusts this authority, and shows the certificate in a file where it has one."""
        context = ssl.create_default_context(cafile=str(self.file))
        if client is not None:
            context.load_cert_chain(client)
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: Key,
        begin: float,
        end: float,
        *,
        names: Sequence[str] = (),
        client: bool = False,
        authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=begin))
            .not_valid_after(now + timedelta(days=end))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .add_extension(_usage(authority), critical=True)
        )
        if not authority:
            purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if names and not client:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
            )
        return builder.sign(self._key, SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    """As a file has it."""
    return certificate.public_bytes(Encoding.PEM)


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
