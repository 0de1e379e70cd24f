"""Logins by a token of OpenID Connect or OAuth 2: a JWT (RFC 7519) that an identity provider signs.

Only signatures with public keys are accepted: a token without a signature, or one that is signed with a public key as
the secret of an HMAC, is refused. All calls may fetch keys and block for some seconds: call them in a thread.
"""

from __future__ import annotations

import json
import math
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jwt import JWTClaimsRegistry, decode

from stompring.errors import Refused
from stompring.settings.model import TokenLogin

from .access import Identity, LoginSource

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"),
)

#: Minimum seconds between two attempts to read the identity provider's keys.
MIN_INTERVAL = 10.0
#: Seconds by which the clock of the identity provider may be ahead of this machine's clock.
LEEWAY = 30
MAX_KEY_BYTES = 256 * 1024
MAX_USER = 200


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects: the keys are only read from the URL in the settings."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class Tokens(LoginSource):
    """Checks the tokens of one issuer. ``now`` returns seconds of a steady clock, ``wall`` epoch seconds."""

    takes_tokens = True

    def __init__(self, settings: TokenLogin, now: Callable[[], float], wall: Callable[[], float]) -> None:
        """Raises OSError if the file of CA certificates cannot be read."""
        super().__init__(f"keys of {settings.issuer}")
        self._settings, self._now, self._wall = settings, now, wall
        context = ssl.create_default_context(cafile=settings.trust_store_path)
        self._opener = build_opener(_NoRedirect, HTTPSHandler(context=context))
        self._lock = threading.Lock()  # only one thread at a time reads the keys
        self._keys: KeySet | None = None
        self._attempted = self._read = -math.inf

    def check(self, name: str, password: str) -> Identity:

        settings = self._settings
        claims = JWTClaimsRegistry(
            now=lambda: int(self._wall()),
            leeway=LEEWAY,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
        )
        try:
            try:
                found = decode(password, self._known_keys(), ALGORITHMS).claims
            except InvalidKeyIdError:
                found = decode(password, self._known_keys(again=True), ALGORITHMS).claims
            claims.validate(found)
            expires = float(found["exp"])
            user = found.get(settings.user_claim)
            if not math.isfinite(expires):
                raise ValueError("exp is not a time")
            if not isinstance(user, str) or not 0 < len(user) <= MAX_USER or not user.isprintable():
                raise ValueError(f"claim {settings.user_claim} is not the name of a user")
        except ExpiredTokenError:
            raise _refused("it has expired") from None
        except (JoseError, ValueError, OverflowError, RecursionError) as error:
            raise _refused(str(error)) from None
        return Identity(user, _roles(found, settings.roles_claim), expires)

    # ---- keys

    def _known_keys(self, again: bool = False) -> KeySet:
        """Return the identity provider's public keys. Raises `Refused` if they were never read.

        Reads the keys again if they are too old or ``again`` is True, at most once in `MIN_INTERVAL` seconds.
        """
        with self._lock:
            now = self._now()
            old = again or now - self._read >= self._settings.key_cache_time / 1000
            if old and now - self._attempted >= MIN_INTERVAL:
                self._attempted = now
                try:
                    self._keys, self._read = self._fetch(), now
                    self.report(None)
                except (OSError, ValueError) as error:
                    self.report(f"{self._settings.keys}: {error}")
            if self._keys is None:
                raise self.refused()
            return self._keys

    def _fetch(self) -> KeySet:

        settings = self._settings
        if "://" in settings.keys:
            with self._opener.open(settings.keys, timeout=settings.connection_timeout / 1000) as response:
                data = response.read(MAX_KEY_BYTES + 1)
        else:
            with Path(settings.keys).open("rb") as file:
                data = file.read(MAX_KEY_BYTES + 1)
        if len(data) > MAX_KEY_BYTES:
            raise ValueError(f"longer than {MAX_KEY_BYTES} bytes")
        try:
            return KeySet.import_key_set(json.loads(data))
        except (JoseError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a set of keys (JWKS): {error}") from None


def _roles(claims: dict[str, Any], name: str) -> frozenset[str]:
    """Return the roles in the claim ``name``: a list of them, or a text in which blanks separate them.

    Dots in ``name`` separate the names of nested objects.
    """
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        value = value.split()
    found = value if isinstance(value, list) else ()
    return frozenset(each for each in found if isinstance(each, str))


def _refused(reason: str) -> Refused:
    return Refused(f"Security Error occurred: the token is not accepted: {reason}", status=401)
