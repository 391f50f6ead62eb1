"""Alarm rules: operations of users, and `alarm_rules` in MongoDB."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import Conflict, Forbidden, InvalidInput, NotFound
from libs.common.http.console import Page
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import KnownLimits, count_limited
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Database, Document, containing, find_page
from services.device.alarms.model import (
    Condition,
    EventCondition,
    Rule,
    ValueCondition,
    read,
    rule_not_found,
    too_many_rules,
    written,
)
from services.device.alarms.schemas import PutRule, SearchRules, ShownRule
from services.device.things.device_store import DeviceStore
from services.device.things.product_store import ProductStore
from services.device.things.visibility import seen

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


COLUMNS = {"id": "_id", "name": "name", "created_at": "createdAt", "updated_at": "updatedAt"}
"""What rules may be sorted by."""
ORDERED = {"GT", "GTE", "LT", "LTE"}


@dataclass(frozen=True)
class AlarmRules:
    """Makes, lists, changes and ends rules."""

    store: RuleStore
    devices: DeviceStore
    products: ProductStore
    grants: GrantReader

    async def search(self, principal: Principal, wanted: SearchRules) -> Page[ShownRule]:
        """A page of the rules that the user sees."""
        grants = await self.grants.of(principal)
        query: Document = {"tenant": principal.tenant}
        if not grants.everything:
            query["$and"] = [{"device": {"$in": await self._seen(principal.tenant, grants)}}]
        if wanted.keyword:
            query["name"] = containing(wanted.keyword)
        if wanted.device_id is not None:
            query["device"] = wanted.device_id
        if wanted.product is not None:
            query["product"] = wanted.product
        if wanted.enabled is not None:
            query["enabled"] = wanted.enabled
        order = wanted.order(COLUMNS)
        skip = (wanted.number - 1) * wanted.size
        found, total = await self.store.search(query, order, skip, wanted.size)
        rows = [_shown(rule) for rule in found]
        return Page(page_size=wanted.size, page_number=wanted.number, total=total, content=rows)

    async def get(self, principal: Principal, rule_id: int) -> ShownRule:
        """A rule; raise `NotFound`."""
        return _shown(await self._find(principal, rule_id))

    async def create(self, principal: Principal, body: PutRule) -> int:
        """Make a rule; raise `InvalidInput`, `NotFound`, `Forbidden` or `TooManyRequests`."""
        now = now_ms()
        target = await self._target(principal, body)
        rule = Rule(
            id=await self.store.new_id(),
            tenant=principal.tenant,
            name=body.name.strip(),
            severity=body.severity,
            condition=_checked(body.condition),
            enabled=body.enabled,
            todo=True,
            created_at=now,
            updated_at=now,
            changed=now,
            **target,
        )
        await self.store.insert(rule)
        return rule.id

    async def replace(self, principal: Principal, rule_id: int, body: PutRule) -> None:
        """Change a rule; what it has raised is over when it decides otherwise now.

        Raises as `create`, and `Conflict` when somebody else changes it at the same time.
        """
        before = await self._find(principal, rule_id)
        target = await self._target(principal, body)
        now = max(now_ms(), before.updated_at + 1)
        rule = msgspec.structs.replace(
            before,
            name=body.name.strip(),
            severity=body.severity,
            condition=_checked(body.condition),
            enabled=body.enabled,
            updated_at=now,
            changed=now,
            **{"device": None, "product": None, **target},
        )
        if _decides(rule) != _decides(before):
            rule.generation, rule.todo = before.generation + 1, True
            if (rule.device, rule.product) != (before.device, before.product):
                await self.store.check_room(rule)
        if not await self.store.replace(rule, before.updated_at):
            raise Conflict("the rule has just been changed", field="rule_id")

    async def delete(self, principal: Principal, rule_id: int) -> None:
        """Delete a rule, and what it has raised is over; raise `NotFound`."""
        await self._find(principal, rule_id)
        if not await self.store.begin_end(principal.tenant, rule_id):
            raise rule_not_found(rule_id)

    async def _find(self, principal: Principal, rule_id: int) -> Rule:
        grants = await self.grants.of(principal)
        rule = await self.store.find(principal.tenant, rule_id)
        if rule is None or not (
            grants.everything or (rule.device and await self._sees(principal, grants, rule.device))
        ):
            raise rule_not_found(rule_id)
        return rule

    async def _target(self, principal: Principal, body: PutRule) -> dict[str, Any]:
        """What a rule is about, which the user sees."""
        if (body.device_id is None) == (body.product is None):
            raise InvalidInput("must be of a device or of a product", field="device_id")
        grants = await self.grants.of(principal)
        if body.device_id is not None:
            if not await self._sees(principal, grants, body.device_id):
                raise NotFound(f"device {body.device_id} not found", field="device_id")
            return {"device": body.device_id}
        if not grants.everything:
            text = "rules of a product are for those who see all devices"
            raise Forbidden(text, field="product")
        if await self.products.find(principal.tenant, str(body.product)) is None:
            raise NotFound(f"product {body.product} not found", field="product")
        return {"product": body.product}

    async def _sees(self, principal: Principal, grants: Grants, device_id: int) -> bool:
        found = await self.devices.lists.listed(principal.tenant, [device_id])
        return any(grants.device(one.id, one.integration, one.group) for one in found)

    async def _seen(self, tenant: str, grants: Grants) -> list[int]:
        return await self.devices.lists.ids_that(tenant, seen(grants))


def _decides(rule: Rule) -> tuple[Any, ...]:
    return rule.device, rule.product, rule.condition, rule.enabled


def _checked(condition: Condition) -> Condition:
    """The condition, when it can be met; raise `InvalidInput`."""
    if isinstance(condition, EventCondition) and condition.event == condition.ended_by:
        raise InvalidInput("must be another event", field="condition.ended_by")
    if isinstance(condition, ValueCondition):
        ordered = condition.comparison in ORDERED
        number = not isinstance(condition.threshold, (bool, str))
        if ordered and not number:
            text = "only numbers are greater or less than others"
            raise InvalidInput(text, field="condition.comparison")
        if condition.hysteresis and not ordered:
            text = "is for comparisons with GT, GTE, LT and LTE"
            raise InvalidInput(text, field="condition.hysteresis")
    return condition


def _shown(rule: Rule) -> ShownRule:
    return ShownRule.from_fields(rule, device_id=None if rule.device is None else str(rule.device))
