"""Stand-ins for what the services' logic works with."""

from datetime import UTC, datetime

import msgspec

from libs.common.identity.tokens import Refusal, TokenPair
from services.auth.applications.schemas import StoredApplication
from services.auth.applications.service import Change, raised
from services.auth.secret_hash import secret_hash

CLIENT_ID = "4f2c8a1e-1111-4222-8333-000000000001"
SECRET = "s3cret"


def application(**changes) -> StoredApplication:
    made = StoredApplication(
        id=1_000_000,
        tenant="t1",
        name="first",
        client_id=CLIENT_ID,
        secret_hash=secret_hash(SECRET),
        generation=3,
        events=True,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return msgspec.structs.replace(made, **changes)


class FakeApplications:
    """Applications in memory; `log` says what happened in which order."""

    def __init__(self, *applications: StoredApplication, log: list | None = None) -> None:
        self.known = {each.id: each for each in applications}
        self.log = [] if log is None else log

    async def by_id(self, application_id):
        return self.known.get(application_id)

    async def by_client_id(self, client_id):
        return next((each for each in self.known.values() if each.client_id == client_id), None)

    async def get(self, application_id, tenant):
        found = self.known.get(application_id)
        return found if found and found.tenant == tenant else None

    async def list(self, tenant):
        return [each for each in self.known.values() if each.tenant == tenant]

    async def create(self, made):
        self.known[made.id] = made
        self.log.append("stored")
        return Change(made, [])

    async def rotate(self, application_id, tenant, hashed):
        found = await self.get(application_id, tenant)
        if found is None:
            return None
        self.known[found.id] = msgspec.structs.replace(raised(found), secret_hash=hashed)
        self.log.append("stored")
        return Change(self.known[found.id], [])

    async def delete(self, application_id, tenant):
        found = await self.get(application_id, tenant)
        if found is None:
            return None
        del self.known[found.id]
        self.log.append("stored")
        return Change(raised(found), [])

    async def relay(self, change):
        self.log.append("told")


class FakeTokens:
    """Token state that answers what it is told to, and remembers what it was asked."""

    def __init__(self, outcome=None, holder=None, log: list | None = None) -> None:
        self.outcome = outcome or TokenPair("access", "refresh")
        self.holder_of = holder
        self.asked: list = []
        self.log = [] if log is None else log

    async def issue(self, principal, generation):
        self.asked.append((principal, generation))
        return self.outcome

    async def holder(self, refresh_token):
        return self.holder_of

    async def rotate(self, refresh_token, principal, generation):
        self.asked.append((refresh_token, principal, generation))
        return self.outcome

    async def revoke_subject(self, kind, subject, generation):
        self.log.append(("revoked", kind, subject, generation))


STALE = Refusal.STALE
REUSED = Refusal.REUSED
