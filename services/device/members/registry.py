"""Who keeps member numbers: `members`, `{_id: owner, marks: [mark, …]}`.

A mark's number is its place in the list, from 1. The list only grows, so a number is never
given twice, whatever versions a product has had.
"""

from collections.abc import Sequence

from libs.common.errors import InvalidInput
from libs.common.store.mongo import Database, DuplicateKey, Session
from libs.common.things import LAST_DECLARED

_ATTEMPTS = 10

Owner = dict[str, str]
"""`{tenant, model}` of a product, or `{integration}`."""


class TooManyMembers(InvalidInput):
    """400: the owner has had more members than there are numbers."""

    def __init__(self) -> None:
        super().__init__(
            f"has had more than {LAST_DECLARED} different members over all its versions",
            field="tsl",
        )


class MemberRegistry:
    """Gives numbers to members."""

    def __init__(self, database: Database) -> None:
        self._members = database["members"]

    async def numbers(
        self, owner: Owner, marks: Sequence[str], session: Session | None = None
    ) -> dict[str, int]:
        """The numbers of `marks`; those that have none get one. Raises `TooManyMembers`.

        In a transaction (`session`) the number is there when the transaction is; whoever
        numbers the same owner meanwhile makes one of the two run again.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            found = await self._members.find_one({"_id": owner}, session=session)
            known: list[str] = found["marks"] if found else []
            missing = list(dict.fromkeys(mark for mark in marks if mark not in set(known)))
            if not missing:
                break
            try:
                if await self._append(owner, known, missing, session):
                    known = [*known, *missing]
                    break
            except DuplicateKey:
                if session is not None or attempt == _ATTEMPTS:
                    raise
        return {mark: at for at, mark in enumerate(known, 1)}

    async def _append(
        self, owner: Owner, known: list[str], missing: list[str], session: Session | None
    ) -> bool:
        if len(known) + len(missing) > LAST_DECLARED:
            raise TooManyMembers
        written = await self._members.update_one(
            {"_id": owner, "marks": {"$size": len(known)}},
            {"$push": {"marks": {"$each": missing}}},
            upsert=not known,
            session=session,
        )
        return bool(written.matched_count or written.upserted_id)

    async def forget(self, owner: Owner, session: Session | None = None) -> None:
        """The owner is gone, and no thing of it is left."""
        await self._members.delete_one({"_id": owner}, session=session)


def owner_of(tenant: str, model: str) -> Owner:
    """The owner that a product is."""
    return {"tenant": tenant, "model": model}
