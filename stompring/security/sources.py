"""The sources of logins beside files: directories and tokens. Their libraries are optional."""

from __future__ import annotations

from collections.abc import Callable

from stompring.errors import CertificateError, ConfigurationError
from stompring.settings.model import LdapLogin, TokenLogin

from .access import LoginSource


def open_source(
    settings: LdapLogin | TokenLogin, now: Callable[[], float], wall: Callable[[], float], file: str | None
) -> LoginSource:
    """Return the source of logins that has these settings. ``now`` returns steady seconds, ``wall`` epoch seconds.

    Raises `ConfigurationError`, with the name of the ``file`` that contains the settings, if the source's library is
    not installed or a file of certificates cannot be read.
    """
    extra = "oidc" if isinstance(settings, TokenLogin) else "ldap"
    try:
        if isinstance(settings, TokenLogin):
            from .tokens import Tokens

            return Tokens(settings, now, wall)
        from .ldap import Directory

        return Directory(settings)
    except ImportError as error:
        text = f"a login module needs a package that is not installed ({error}): pip install 'stompring[{extra}]'"
        raise ConfigurationError(text, file) from None
    except CertificateError as error:
        raise ConfigurationError(str(error), file) from None
    except OSError as error:
        raise ConfigurationError(f"{settings.trust_store_path}: {error}", file) from None
