"""An application as this service keeps it."""

from datetime import datetime

import msgspec

from libs.common.contracts.auth import Application
from libs.common.identity import Kind, Principal


class StoredApplication(msgspec.Struct, frozen=True, kw_only=True):
    """An application with the hash of its secret."""

    id: int
    tenant: str
    name: str
    client_id: str
    """A UUID, unique over all tenants."""
    secret_hash: str
    generation: int
    """Counts the secrets the application has had; tokens of an earlier one are void."""
    events: bool
    created_at: datetime

    @property
    def principal(self) -> Principal:
        """The principal that its tokens stand for."""
        return Principal(
            kind=Kind.APPLICATION, tenant=self.tenant, subject=str(self.id), name=self.name
        )

    @property
    def listed(self) -> Application:
        """What other services may know."""
        return Application(
            application_id=self.id,
            name=self.name,
            tenant=self.tenant,
            client_id=self.client_id,
            events=self.events,
            created_at=int(self.created_at.timestamp() * 1000),
        )
