"""Logins by token, with real keys."""

import base64
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
from joserfc.jwt import encode
from twisted.internet.task import Clock

from stompring.errors import Refused
from stompring.settings.model import TokenLogin

from ..login_sources import source_of

NOW = int(time.time())
HOUR = 3600
ALGORITHMS = ("RS256", "PS512", "ES256", "Ed25519")
RSA = RSAKey.generate_key(2048, {"kid": "one"})
EC = ECKey.generate_key("P-256", {"kid": "two"})
ED = OKPKey.generate_key("Ed25519", {"kid": "three"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
CLAIMS = {
    "iss": "https://issuer",
    "aud": "stompring",
    "sub": "ada",
    "exp": NOW + HOUR,
    "roles": ["clerks", "staff"],
}


def token(key=RSA, algorithm="RS256", kid="one", **claims):
    return encode({"alg": algorithm, "kid": kid}, {**CLAIMS, **claims}, key, ALGORITHMS)


def jwks(*keys):
    return json.dumps(KeySet(list(keys)).as_dict())


@pytest.fixture
def keys(tmp_path):
    found = tmp_path / "keys.json"
    found.write_text(jwks(RSA, EC, ED))
    return found


@pytest.fixture
def clock():
    return Clock()


def tokens_of(source, clock, **settings):
    return source_of(TokenLogin("https://issuer", "stompring", str(source), **settings), clock)


@pytest.fixture
def tokens(keys, clock):
    return tokens_of(keys, clock)


@pytest.mark.parametrize(
    "key, algorithm, kid",
    [(RSA, "RS256", "one"), (RSA, "PS512", "one"), (EC, "ES256", "two"), (ED, "Ed25519", "three")],
)
def test_a_token_with_a_key_of_the_issuer_is_a_login(tokens, key, algorithm, kid):
    given = token(key, algorithm, kid)
    assert tokens.check("", given) == ("ada", {"clerks", "staff"}, NOW + HOUR)


@pytest.mark.parametrize(
    "claim, value, roles",
    [
        ("roles", "a b", {"a", "b"}),
        ("roles", None, set()),
        ("roles", [1, "a", None], {"a"}),
        ("roles", {"a": 1}, set()),
        ("realm_access.roles", {"roles": ["a"]}, {"a"}),
        ("realm_access.roles", ["a"], set()),
        ("https://example.org/roles", ["a"], {"a"}),
    ],
)
def test_roles_of_a_claim(keys, clock, claim, value, roles):
    name = claim if claim.startswith("https") else claim.partition(".")[0]
    found = tokens_of(keys, clock, roles_claim=claim).check("", token(**{"roles": None, name: value}))
    assert found.roles == roles


def part(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(header, claims=CLAIMS, secret=None):
    body = f"{part(header)}.{part(claims)}"
    return f"{body}.{'' if secret is None else part(hmac.digest(secret, body.encode(), hashlib.sha256))}"


PEM = RSA.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
GOOD = token()
ATTACKS = {
    "alg none": signed({"alg": "none", "kid": "one"}),
    "alg None": signed({"alg": "nOnE", "kid": "one"}),
    "no alg": signed({"kid": "one"}),
    "HMAC with the public key in PEM": signed({"alg": "HS256", "kid": "one"}, secret=PEM),
    "HMAC with the public key in JSON": signed(
        {"alg": "HS256", "kid": "one"}, secret=json.dumps(RSA.as_dict(private=False)).encode()
    ),
    "key in the header": encode(
        {"alg": "RS256", "kid": "one", "jwk": OTHER.as_dict(private=False)}, CLAIMS, OTHER, ALGORITHMS
    ),
    "another key of the same name": token(OTHER),
    "algorithm of another key": signed({"alg": "ES256", "kid": "one"}) + "AAAA",
    "wrong audience": token(aud="another"),
    "wrong audiences": token(aud=["a", "b"]),
    "no audience": token(aud=None),
    "wrong issuer": token(iss="https://issuer.evil"),
    "expired": token(exp=NOW - HOUR),
    "no expiry": token(exp=None),
    "expiry is a text": token(exp="never"),
    "expiry is no number": signed({"alg": "RS256", "kid": "one"}, {**CLAIMS, "exp": float("nan")}),
    "endless": token(exp=float("inf")),
    "not valid yet": token(nbf=NOW + HOUR),
    "of the future": token(iat=NOW + HOUR),
    "no user": token(sub=None),
    "empty user": token(sub=""),
    "user is a number": token(sub=7),
    "user with a line end": token(sub="a\nb"),
    "changed claims": ".".join((GOOD.split(".")[0], part({**CLAIMS, "sub": "root"}), GOOD.split(".")[2])),
    "no signature": GOOD.rpartition(".")[0] + ".",
    "claims are a list": signed({"alg": "RS256", "kid": "one"}, [1]),
    "critical header": encode({"alg": "RS256", "kid": "one"}, CLAIMS, RSA, ALGORITHMS).replace(
        GOOD.split(".")[0], part({"alg": "RS256", "kid": "one", "crit": ["x"], "x": 1})
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused_with_a_reason(tokens, attack):
    with pytest.raises(Refused, match="the token is not accepted: .") as caught:
        tokens.check("", ATTACKS[attack])
    assert caught.value.status == 401 and tokens.fault is None


def test_keys_that_change_are_read_again_but_not_often(keys, tokens, clock):
    tokens.check("", token())
    newer = RSAKey.generate_key(2048, {"kid": "new"})
    keys.write_text(jwks(newer))
    with pytest.raises(Refused, match="No key for kid"):
        tokens.check("", token(newer, kid="new"))
    clock.advance(10)
    assert tokens.check("", token(newer, kid="new"))
    with pytest.raises(Refused, match="No key for kid"):
        tokens.check("", token())  # the old key is gone
    clock.advance(3600)
    keys.write_text("{}")
    assert tokens.check("", token(newer, kid="new")), "the known keys stay in force"
    assert tokens.fault is not None and "keys.json: not a set of keys (JWKS)" in tokens.fault


class Server(ThreadingHTTPServer):
    """Serves keys over HTTP, and counts the requests."""

    requests = 0
    content = b""
    location = ""

    def __init__(self):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.requests += 1
                self.send_response(302 if server.location else 200)
                if server.location:
                    self.send_header("Location", server.location)
                self.end_headers()
                self.wfile.write(server.content)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        server = self


@pytest.fixture
def server():
    found = Server()
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def test_keys_over_http(server, clock):
    tokens = tokens_of(f"http://127.0.0.1:{server.server_port}/keys", clock)
    for content, location, reason in (
        (b"", "/elsewhere", "302"),
        (b"<html>", "", "Expecting value"),
        (b" " * 300_000, "", "longer than"),
        (b"[]", "", "not a set of keys"),
    ):
        server.content, server.location = content, location
        for _ in range(3):
            with pytest.raises(Refused, match=reason) as caught:
                tokens.check("", token())
            assert caught.value.status == 502
        clock.advance(10)
    assert server.requests == 4, "an attempt every ten seconds"
    server.content = jwks(RSA).encode()
    assert tokens.check("", token()).user == "ada" and tokens.fault is None
    for _ in range(5):
        with pytest.raises(Refused):
            tokens.check("", token(EC, "ES256", "two"))
    assert server.requests == 5
