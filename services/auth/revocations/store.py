"""Revocations in MongoDB, from the transaction that decides them until they have settled.

`revocations`: `{_id, kind | null, subject, generation, user, at}`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from libs.common.identity import Kind
from libs.common.store.mongo import Database, Session

CHUNK = 500


@dataclass(frozen=True, slots=True)
class Revocation:
    """Everything older than `generation` of an application or user, or the key of a device."""

    kind: Kind | None
    """None: there is nothing but connections."""
    subject: str
    generation: int = 0
    user: str = ""
    """The user of the bus whose connections of an earlier credential end; empty: nobody's."""


class RevocationStore:
    """The collection `revocations`."""

    def __init__(self, database: Database) -> None:
        self._revocations = database["revocations"]

    async def add(self, revocation: Revocation, session: Session) -> None:
        """Write a revocation in the caller's transaction."""
        document = {
            "kind": revocation.kind and revocation.kind.value,
            "subject": revocation.subject,
            "generation": revocation.generation,
            "user": revocation.user,
            "at": datetime.now(UTC),
        }
        await self._revocations.insert_one(document, session=session)

    async def older_than(self, seconds: float) -> list[tuple[object, Revocation]]:
        """Up to `CHUNK` revocations of that age, the oldest first, with their ids."""
        old = {"at": {"$lt": datetime.now(UTC) - timedelta(seconds=seconds)}}
        documents = await self._revocations.find(old).sort("at", 1).to_list(CHUNK)
        return [
            (
                document["_id"],
                Revocation(
                    document["kind"] and Kind(document["kind"]),
                    document["subject"],
                    document["generation"],
                    document.get("user", ""),
                ),
            )
            for document in documents
        ]

    async def postpone(self, identity: object) -> None:
        """Let a revocation be as if it were written now."""
        await self._revocations.update_one({"_id": identity}, {"$set": {"at": datetime.now(UTC)}})

    async def remove(self, ids: Sequence[object]) -> None:
        """Remove revocations that are true for good."""
        if ids:
            await self._revocations.delete_many({"_id": {"$in": list(ids)}})
