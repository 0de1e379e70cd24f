"""The management API of a running broker, as the data commands ask it."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import click

#: Seconds that an answer may take.
REQUEST_TIMEOUT = 60.0


class Missing(Exception):
    """There is no such queue or address."""


class ManagementApi:
    """Asks one broker. Everything that goes wrong becomes a `click.ClickException` with the broker's own words."""

    def __init__(
        self, root: str, login: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """``root`` is ``http://HOST:PORT``, or ``https://`` with what its certificate is checked against in ``tls``."""
        self._root = root.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if login is not None:
            secret = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"
        # a broker is not behind the proxy for the web
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=tls))

    def ask(
        self, method: str, path: tuple[str, ...], body: Mapping[str, Any] | None = None, **query: object
    ) -> Any:
        """``/api/v1/`` and the parts of ``path``. Raises `Missing`."""
        where = "/api/v1/" + "/".join(quote(part, safe="") for part in path)
        where += f"?{urlencode(query)}" if query else ""
        data, headers = None, dict(self._headers)
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = Request(self._root + where, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=REQUEST_TIMEOUT) as answer:
                text = answer.read()
        except HTTPError as error:
            if error.code == 404:
                raise Missing(where) from None
            raise click.ClickException(f"the broker refuses {method} {where}: {_reason(error)}") from None
        except (URLError, OSError, HTTPException) as fault:
            reason = getattr(fault, "reason", fault)
            raise click.ClickException(f"cannot reach the broker's HTTP at {self._root}: {reason}") from None
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError):
            raise click.ClickException(f"what answers at {self._root} is no broker's HTTP: no JSON") from None


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
