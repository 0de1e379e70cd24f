"""Certificates and keys in files, right and wrong."""

import pytest

from stompring.errors import CertificateError
from stompring.security.accounts import certificate_files, peer_subject, subject_of
from stompring.security.certificates import read_certificates, read_identities

from ..certificates import Authority

DAY = 86_400.0


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def fault(*paths, keys=(), password=None):
    with pytest.raises(CertificateError) as caught:
        read_identities([str(path) for path in paths], [str(key) for key in keys], password)
    return str(caught.value)


def test_key_and_certificate_in_one_file(authority):
    path = authority.issue("b.pem", ("Broker.Example", "*.example.org", "192.0.2.1"))
    (found,) = read_identities([str(path)], [], None)
    assert found.names == ("broker.example", "*.example.org", "192.0.2.1")
    assert found.subject == "CN=broker,O=Example"
    assert found.file == str(path) and "PrivateKey" not in repr(found)
    assert found.describe().startswith(
        "certificate CN=broker,O=Example for broker.example, *.example.org, 192"
    )


def test_the_common_name_where_there_is_no_other(authority):
    (found,) = read_identities([str(authority.issue("b.pem", (), common="Old.Example"))], [], None)
    assert found.names == ("old.example",)


def test_key_elsewhere(authority):
    path = authority.issue("b.pem", key_apart=True)
    elsewhere = path.with_name("private")
    path.with_suffix(".key").rename(elsewhere)
    assert "no private key in the file, and no file b.key beside it" in fault(path)
    assert len(read_identities([str(path)], [str(elsewhere)], None)) == 1


def test_a_chain(authority):
    path = authority.issue("b.pem")
    path.write_bytes(path.read_bytes() + authority.file.read_bytes())
    (found,) = read_identities([str(path)], [], None)
    assert [subject_of(one) for one in found.chain] == ["CN=broker,O=Example", "CN=authority,O=Example"]


def test_a_directory(authority, tmp_path):
    (tmp_path / "certs").mkdir()
    inner = Authority(tmp_path / "certs", "zz")
    assert "no private key in the file" in fault(tmp_path / "certs")
    inner.file.unlink()
    assert "no .pem file in this directory" in fault(tmp_path / "certs")
    for name in ("b", "a"):
        inner.issue(f"{name}.pem", (f"{name}.example",), key_apart=name == "b")
    (tmp_path / "certs" / "README").write_text("none")
    found = read_identities([str(tmp_path / "certs")], [], None)
    assert [one.names for one in found] == [("a.example",), ("b.example",)]
    assert "keyPath cannot be used with a directory" in fault(tmp_path / "certs", keys=(tmp_path / "x",))


def test_encrypted_keys(authority):
    path = authority.issue("b.pem", password="secret")
    assert len(read_identities([str(path)], [], "secret")) == 1
    assert "is encrypted: set keyStorePassword" in fault(path)
    wrong = fault(path, password="wrong")
    assert "wrong password" in wrong and "secret" not in wrong
    assert len(read_identities([str(authority.issue("c.pem"))], [], "secret")) == 1


def test_a_key_of_another(authority):
    one, other = authority.issue("b.pem", key_apart=True), authority.issue("c.pem", key_apart=True)
    assert fault(one, keys=(other.with_suffix(".key"),)) == (
        f"{other.with_suffix('.key')}: private key does not match the certificate in {one}"
    )


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"", "not a PEM file"),
        (b"\xfe\xed\xfe\xed\0\0", "Java keystore: set keyStorePassword"),
        (b"\x30\x82\x01\x02", "Java keystore: set keyStorePassword"),
        (b"\xce\xce\xce\xce\0\0", "keystore of type JCEKS: convert it to PKCS12"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not a valid certificate"),
        (b"-----BEGIN CERTIFICATE-----\n", "not a valid certificate"),
        (bytes(range(256)) * 100, "not a PEM file"),
    ],
)
def test_files_that_hold_none(tmp_path, content, expected):
    path = tmp_path / "b.pem"
    path.write_bytes(content)
    assert fault(path).startswith(f"{path}: {expected}")
    with pytest.raises(CertificateError):
        read_certificates(str(path))


def test_a_damaged_key(authority):
    path = authority.issue("b.pem", key_apart=True)
    path.with_suffix(".key").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    assert "private key cannot be read" in fault(path)


def test_files_that_cannot_be_read(tmp_path):
    assert fault(tmp_path / "b.pem") == f"{tmp_path / 'b.pem'}: cannot be read: No such file or directory"


def test_expiry_warnings(authority):
    (found,) = read_identities([str(authority.issue("b.pem", begin=-1, days=10))], [], None)
    end, begin = found.not_after.timestamp(), found.not_before.timestamp()
    assert found.expiry_warning(end - 10 * DAY, 9 * DAY) is None
    assert "expires in 9 days, on " in (found.expiry_warning(end - 9 * DAY, 30 * DAY) or "")
    assert "has expired on " in (found.expiry_warning(end, 30 * DAY) or "")
    assert "is not valid before " in (found.expiry_warning(begin - 1, 0) or "")


def test_the_end_is_that_of_the_whole_chain(authority, tmp_path):
    path = authority.issue("b.pem", days=20_000)
    path.write_bytes(path.read_bytes() + authority.file.read_bytes())
    (found,) = read_identities([str(path)], [], None)
    assert found.not_after == authority.certificate.not_valid_after_utc


def test_files_to_look_at(authority, tmp_path):
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "a.pem").touch()
    looked = set(certificate_files([str(tmp_path / "b.pem"), str(tmp_path / "certs")], [str(tmp_path / "k")]))
    assert looked == {
        tmp_path / name for name in ("b.pem", "b.key", "certs", "certs/a.pem", "certs/a.key", "k")
    }


def test_a_transport_without_tls_has_none():
    assert peer_subject(object()) is peer_subject(None) is None
