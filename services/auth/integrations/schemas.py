"""Logins of integrations as this service keeps them."""

from datetime import datetime

import msgspec

from libs.common.clock import to_ms
from libs.common.contracts.auth import IntegrationLogin
from libs.common.contracts.integrations import login_of


class StoredLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A login with the hash of its secret; one for each integration, for all tenants."""

    integration: str
    secret_hash: str
    created_at: datetime

    @property
    def listed(self) -> IntegrationLogin:
        """What the operator sees."""
        created_at = to_ms(self.created_at)
        return IntegrationLogin(self.integration, login_of(self.integration), created_at)
