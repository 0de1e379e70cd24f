"""Web origins (RFC 6454): what a browser says a page is from, and how broker.xml names them."""

from __future__ import annotations

from urllib.parse import urlsplit

#: Stands in a list for all of them.
ANY = "*"

#: What browsers send for pages that have none: of a file, or in a sandbox.
NULL = "null"

_USUAL_PORTS = {"http": 80, "https": 443}


def normal_origin(text: str) -> str:
    """``text`` in small letters and without the port that is usual for its scheme. Raises `ValueError`."""
    lowered = text.strip().lower()
    if lowered == NULL:
        return NULL
    split = urlsplit(lowered)
    if not split.scheme or not split.hostname or split.username is not None:
        raise ValueError("must be scheme://host or scheme://host:port")
    if split.path not in ("", "/") or split.query or split.fragment:
        raise ValueError("must end after its host and port")
    host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
    port = split.port
    shown = "" if port is None or port == _USUAL_PORTS.get(split.scheme) else f":{port}"
    return f"{split.scheme}://{host}{shown}"


def origin_host(origin: str) -> str:
    """The host that an origin names; empty for ``null``, ``*`` and what is none."""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without its port; empty where there is none."""
    try:
        return urlsplit(f"//{host.strip()}").hostname or ""
    except ValueError:
        return ""


def origins(text: str) -> tuple[str, ...]:
    """A comma list of origins, in their normal form. Raises `ValueError`."""
    found = []
    for part in text.split(","):
        try:
            found.append(ANY if part.strip() == ANY else normal_origin(part))
        except ValueError:
            raise ValueError(
                "must be origins with a comma between each two, as https://app.example.com,http://localhost:8080, "
                f"or {ANY} for all; a page without one is {NULL}"
            ) from None
    if len(set(found)) < len(found):
        raise ValueError("names an origin twice")
    if ANY in found and len(found) > 1:
        raise ValueError(f"names {ANY}, which is all of them, and others")
    return tuple(found)
