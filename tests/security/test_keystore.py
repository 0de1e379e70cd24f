"""Java keystores: private keys with their chains and trusted certificates, of JKS as of PKCS12."""

import hashlib
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificates

from stompring.security.certificates import (
    CertificateError,
    KeystoreError,
    is_keystore,
    read_certificates,
    read_identities,
    read_keystore,
)

from ..certificates import Authority

PASSWORD = "sécret"
of_each_kind = pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
ENCRYPTION = BestAvailableEncryption(PASSWORD.encode())


def text(value):
    data = value.encode()
    return len(data).to_bytes(2, "big") + data


def block(data):
    return len(data).to_bytes(4, "big") + data


def sha1(data):
    return hashlib.sha1(data, usedforsecurity=False).digest()


def der(tag, data):
    size = len(data)
    return bytes([tag, 0x82, size >> 8, size & 255]) + data


def sealed(key, password):
    """A private key as Sun's provider writes it."""
    secret, salt, stream = password.encode("utf-16-be"), bytes(range(20)), b""
    digest = salt
    while len(stream) < len(key):
        digest = sha1(secret + digest)
        stream += digest
    body = bytes(one ^ other for one, other in zip(key, stream, strict=False))
    algorithm = der(0x30, bytes.fromhex("060a2b060104012a021101010500"))
    return der(0x30, algorithm + der(0x04, salt + body + sha1(secret + key)))


def jks(entries, password=PASSWORD):
    content = (
        b"\xfe\xed\xfe\xed" + (2).to_bytes(4, "big") + len(entries).to_bytes(4, "big") + b"".join(entries)
    )
    return content + sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + content)


def certificate_entry(data):
    return text("X.509") + block(data)


def trusted_entry(data):
    return (2).to_bytes(4, "big") + text("ca") + bytes(8) + certificate_entry(data)


def key_entry(key, chain, password=PASSWORD):
    head = (1).to_bytes(4, "big") + text("broker") + bytes(8) + block(sealed(key, password))
    return head + len(chain).to_bytes(4, "big") + b"".join(map(certificate_entry, chain))


class Files:
    """A certificate of an authority, its key, and the keystores that are made of them."""

    def __init__(self, directory):
        authority = Authority(directory)
        written = authority.issue("broker.pem").read_bytes()
        self.authority = authority.certificate
        self.chain = [*load_pem_x509_certificates(written), self.authority]
        self.issuer = authority
        self.key = load_pem_private_key(written, None)
        self.pkcs8 = self.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def ders(self):
        return [each.public_bytes(Encoding.DER) for each in self.chain]

    def keystore(self, kind):
        if kind == "JKS":
            return jks([key_entry(self.pkcs8, self.ders())])
        return pkcs12.serialize_key_and_certificates(
            b"broker", self.key, self.chain[0], self.chain[1:], ENCRYPTION
        )

    def truststore(self, kind):
        if kind == "JKS":
            return jks([trusted_entry(self.authority.public_bytes(Encoding.DER))])
        return pkcs12.serialize_key_and_certificates(b"ca", None, None, [self.authority], ENCRYPTION)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("keystore"))


@of_each_kind
def test_identity_comes_from_a_keystore(files, tmp_path, kind):
    path = tmp_path / "broker.store"
    path.write_bytes(files.keystore(kind))
    (identity,) = read_identities([str(path)], [], PASSWORD)
    assert list(identity.chain) == files.chain
    assert identity.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()) == files.pkcs8


@of_each_kind
def test_trusted_certificates_come_from_a_keystore(files, tmp_path, kind):
    path = tmp_path / "trust.store"
    path.write_bytes(files.truststore(kind))
    assert read_certificates(str(path), PASSWORD) == [files.authority]


@of_each_kind
@pytest.mark.parametrize(
    "password, words",
    [
        (None, "Java keystore: set keyStorePassword"),
        ("wrong", "wrong password or damaged keystore"),
    ],
)
def test_password_must_be_right(files, tmp_path, kind, password, words):
    path = tmp_path / "broker.store"
    path.write_bytes(files.keystore(kind))
    with pytest.raises(CertificateError, match=words) as fault:
        read_identities([str(path)], [], password)
    assert str(fault.value).startswith(f"{path}: ") and "wrong" not in str(fault.value).replace(words, "")


def test_keystore_without_what_is_needed_is_refused(files, tmp_path):
    path = tmp_path / "store"
    path.write_bytes(files.truststore("JKS"))
    with pytest.raises(CertificateError, match="no private key in this keystore"):
        read_identities([str(path)], [], PASSWORD)
    path.write_bytes(files.keystore("JKS"))
    with pytest.raises(CertificateError, match="no trusted certificate in this keystore"):
        read_certificates(str(path), PASSWORD)
    with pytest.raises(CertificateError, match="set trustStorePassword"):
        read_certificates(str(path))


def test_key_with_a_password_of_its_own_is_refused(files):
    store = jks([key_entry(files.pkcs8, files.ders(), "another")])
    with pytest.raises(KeystoreError, match="a private key has another password than the keystore"):
        read_keystore(store, PASSWORD)


@of_each_kind
def test_every_truncated_keystore_is_refused(files, kind):
    whole = files.keystore(kind)
    for size in (4, 12, 30, len(whole) // 2, len(whole) - 1):
        with pytest.raises(KeystoreError):
            read_keystore(whole[:size], PASSWORD)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"\xfe\xed\xfe\xed" + bytes([0, 0, 0, 9]) + bytes(4), "version 9 is unknown"),
        (b"\xfe\xed\xfe\xed" + bytes([0, 0, 0, 2, 0, 0, 0, 1]), "the file is truncated"),
        (b"\xfe\xed\xfe\xed" + bytes([0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7]) + bytes(10), "an entry of type 7"),
    ],
)
def test_a_keystore_that_is_none_is_refused(content, words):
    digest = sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content)
    with pytest.raises(KeystoreError, match=words):
        read_keystore(content + digest, PASSWORD)


def test_certificate_in_der_is_no_keystore(files):
    assert not is_keystore(files.ders()[0])
    assert not is_keystore(b"-----BEGIN CERTIFICATE-----")


@pytest.mark.skipif(shutil.which("keytool") is None, reason="java is not installed: keytool is its program")
@of_each_kind
def test_keystore_of_keytool_is_read(tmp_path, kind):
    path = tmp_path / "broker.store"
    made = (
        f"-genkeypair -alias broker -keyalg RSA -keysize 2048 -dname CN=localhost -storetype {kind} -noprompt"
    )
    secret = "-storepass secret -keypass secret -keystore"
    words = ["keytool", *made.split(), *secret.split(), str(path)]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    (identity,) = read_identities([str(path)], [], "secret")
    assert identity.subject == "CN=localhost"
