"""Stand-ins for what the services' logic works with."""

from datetime import UTC, datetime

import msgspec

from services.auth.applications.model import StoredApplication
from services.auth.changes import ChangeRunner, ChangeTransaction
from services.auth.client_secrets import hash_secret
from services.auth.tokens.writer import TokenPair, TokenRejection

CLIENT_ID = "4f2c8a1e-1111-4222-8333-000000000001"
SECRET = "s3cret"


def application(**changes) -> StoredApplication:
    made = StoredApplication(
        id=1_000_000,
        tenant="t1",
        name="first",
        client_id=CLIENT_ID,
        secret_hash=hash_secret(SECRET),
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

    async def next_id(self):
        return 5

    async def find_by_id(self, application_id):
        return self.known.get(application_id)

    async def find_by_client_id(self, client_id):
        return next((each for each in self.known.values() if each.client_id == client_id), None)

    async def get(self, application_id, tenant, change=None):
        found = self.known.get(application_id)
        return found if found and found.tenant == tenant else None

    async def list_all(self, tenant):
        return [each for each in self.known.values() if each.tenant == tenant]

    async def add(self, made, change):
        self.known[made.id] = made

    async def replace(self, made, change):
        self.known[made.id] = made

    async def remove(self, gone, change):
        del self.known[gone.id]


class FakeChanges:
    """Runs changes without a transaction, and records them in `log` and `entries`."""

    def __init__(self, log: list | None = None) -> None:
        self.log = [] if log is None else log
        self.entries: list = []

    async def reserve(self, limit: str) -> None:
        """Every tenant has room."""

    record = ChangeRunner.record

    async def run(self, caller, work):
        change = ChangeTransaction(session=None, reserve=self.reserve)
        result = await work(change)
        for each in change.revocations:
            if each.kind:
                self.log.append(("revoked", each.kind, each.subject, each.generation))
            if each.user:
                self.log.append(("disconnected", each.user))
        for entry in change.entries:
            self.log.append(entry.action)
            self.entries.append(entry)
        return result


class FakeTokens:
    """Token state with given results and a record of calls."""

    def __init__(self, outcome=None, holder=None, log: list | None = None) -> None:
        self.outcome = outcome or TokenPair("access", "refresh", 0.0)
        self.holder_of = holder
        self.asked: list = []
        self.log = [] if log is None else log

    async def issue(self, principal, generation):
        self.asked.append((principal, generation))
        return self.outcome

    async def find_principal(self, refresh_token):
        return self.holder_of

    async def rotate(self, refresh_token, principal, generation):
        self.asked.append((refresh_token, principal, generation))
        return self.outcome

    async def revoke_older_tokens(self, kind, subject, generation):
        self.log.append(("revoked", kind, subject, generation))


STALE = TokenRejection.STALE
REUSED = TokenRejection.REUSED
