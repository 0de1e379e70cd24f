"""What checks logins beside the users file: a directory or tokens, as a broker makes it from its settings."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from stompring.server.service import BrokerService
from stompring.settings.model import BrokerConfiguration, LdapLogin, TokenLogin


def source_of(settings: LdapLogin | TokenLogin, clock: Clock | None = None) -> Any:
    """The source of logins of a broker with these settings."""
    configuration = BrokerConfiguration(
        persistence_enabled=False, users_file="/no/users", roles_file="/no/roles", login_modules=(settings,)
    )
    service = BrokerService(configuration, clock or Clock())
    service.authenticator()
    assert service.security is not None
    return service.security.logins.modules[-1].source
