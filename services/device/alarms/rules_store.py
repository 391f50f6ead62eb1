"""Rules in MongoDB: `alarm_rules`, documents of `Rule`."""

from collections.abc import Mapping, Sequence
from typing import Any

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits, count_limited
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Database, Document, find_page
from services.device.alarms.errors import too_many_rules
from services.device.alarms.model import Rule, read, written

HEARD = 60_000
"""ms for which a rule that is deleted stays, so that every process hears of it."""


class RuleStore:
    """The collection `alarm_rules`."""

    def __init__(self, database: Database, limits: KnownLimits) -> None:
        self._rules = database["alarm_rules"]
        self._limits = limits
        self._quota = Quota(self._rules, limits, "records")
        self._ids = IdAllocator(database, "alarm_rules", block=20)

    async def new_id(self) -> int:
        """An id that no rule has."""
        return await self._ids.take()

    async def insert(self, rule: Rule) -> None:
        """Add a rule; raise `InvalidInput` or `TooManyRequests` when there are too many."""
        await self._quota.take(rule.tenant)
        await self.check_room(rule)
        await self._rules.insert_one(written(rule))
        try:
            await self.check_room(rule)  # again: others may have added theirs meanwhile
        except InvalidInput:
            await self.begin_end(rule.tenant, rule.id)
            raise

    async def check_room(self, rule: Rule) -> None:
        """Raise `InvalidInput` when the device or product of a rule has too many others."""
        kind = "product" if rule.device is None else "device"
        most = getattr(await self._limits.asked(rule.tenant), f"{kind}_rules")
        others = {"tenant": rule.tenant, "ending": False, "_id": {"$ne": rule.id}}
        others[kind] = getattr(rule, kind)
        if await self._rules.count_documents(others, limit=most) >= most:
            count_limited(f"{kind}Rules", rule.tenant)
            raise too_many_rules(f"{kind}Rules", most)

    async def find(self, tenant: str, rule_id: int) -> Rule | None:
        """A rule of the tenant."""
        found = await self._rules.find_one({"_id": rule_id, "tenant": tenant, "ending": False})
        return None if found is None else read(found, Rule)

    async def replace(self, rule: Rule, before: int) -> bool:
        """Write a rule over that of a time of change (ms); False when it has changed since."""
        query = {"_id": rule.id, "updatedAt": before, "ending": False}
        return bool((await self._rules.replace_one(query, written(rule))).matched_count)

    async def begin_end(self, tenant: str, rule_id: int) -> bool:
        """From now on there is no such rule; False when there was none already."""
        query = {"_id": rule_id, "tenant": tenant, "ending": False}
        change = {"$set": {"ending": True, "todo": True, "changed": now_ms()}}
        return bool((await self._rules.update_one(query, change)).matched_count)

    async def search(
        self, query: Document, order: list[tuple[str, int]], skip: int, limit: int
    ) -> tuple[list[Rule], int]:
        """A page of rules, and how many match in all."""
        query = {**query, "ending": False}
        found, total = await find_page(self._rules, query, order, skip, limit)
        return [read(one, Rule) for one in found], total

    async def all(self) -> list[Rule]:
        """Those of all tenants that decide something."""
        found = self._rules.find({"enabled": True, "ending": False})
        return [read(one, Rule) async for one in found]

    async def changed(self, since: int) -> list[Rule]:
        """Those that have been written since (ms), also those that are ending."""
        found = self._rules.find({"changed": {"$gte": since}})
        return [read(one, Rule) async for one in found]

    async def about(self, tenant: str, devices: Mapping[int, str]) -> list[Rule]:
        """Those that decide something of devices, which are given with their products."""
        targets = [
            {"device": {"$in": list(devices)}},
            {"product": {"$in": list(set(devices.values()))}},
        ]
        query = {"tenant": tenant, "enabled": True, "ending": False, "$or": targets}
        return [read(one, Rule) async for one in self._rules.find(query)]

    async def some(self, ids: Sequence[int]) -> dict[int, Rule]:
        """Rules by id; one that is gone is missing."""
        found = self._rules.find({"_id": {"$in": list(ids)}})
        return {one["_id"]: read(one, Rule) async for one in found}

    async def tenants_to_do(self) -> list[str]:
        """Return the tenants of rules that `to_do` returns."""
        return list(await self._rules.distinct("tenant", {"todo": True}))

    async def to_do(self, tenant: str) -> list[Rule]:
        """Rules that have changed, and whose states have yet to follow."""
        query = {"todo": True, "tenant": tenant}
        return [read(one, Rule) async for one in self._rules.find(query)]

    async def done(self, rule: Rule) -> None:
        """The states have followed a rule; one that is being deleted goes."""
        query: dict[str, Any] = {"_id": rule.id, "updatedAt": rule.updated_at}
        if rule.ending:
            if rule.changed < now_ms() - HEARD:
                await self._rules.delete_one(query)
        else:
            await self._rules.update_one({**query, "ending": False}, {"$unset": {"todo": ""}})

    async def end_of_device(self, tenant: str, device_id: int) -> None:
        """A device is gone, and its rules with it."""
        change = {"$set": {"ending": True, "todo": True, "changed": now_ms()}}
        await self._rules.update_many({"tenant": tenant, "device": device_id}, change)
