"""Alarm rules: operations of users, and collection `alarm_rules`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import Wakeups
from libs.common.clock import now_ms
from libs.common.errors import Conflict, Forbidden, InvalidInput, NotFound
from libs.common.http.console import Page
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import LimitsCache, count_rejection
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Database, Document, build_text_condition, find_page
from services.device.alarms.model import (
    ALARMS_TOPIC,
    EventCondition,
    Rule,
    RuleCondition,
    ValueCondition,
    from_document,
    rule_not_found,
    to_document,
)
from services.device.alarms.schemas import AlarmRuleResponse, PutRule, SearchRules
from services.device.things.device_store import DeviceStore
from services.device.things.product_store import ProductStore
from services.device.things.visibility import granted_condition

DELETED_RULE_RETENTION_MS = 60_000
"""Milliseconds for which a deleted rule stays stored, so that every process reads the deletion."""


class RuleStore:
    """Reads and writes rules."""

    def __init__(self, database: Database, limits: LimitsCache, wakeups: Wakeups) -> None:
        self._rules = database["alarm_rules"]
        self._wakeups = wakeups
        self._limits = limits
        self._quota = Quota(self._rules, limits, "records")
        self._ids = IdAllocator(database, "alarm_rules", block=20)

    async def new_id(self) -> int:
        """Return an id for a new rule."""
        return await self._ids.allocate()

    async def insert(self, rule: Rule) -> None:
        """Insert a rule; raise `InvalidInput` or `TooManyRequests` at a limit."""
        await self._quota.reserve(rule.tenant)
        await self.check_limit(rule)
        self._wakeups.notify(ALARMS_TOPIC)
        await self._rules.insert_one(to_document(rule))
        try:
            await self.check_limit(rule)  # again, because another request may have inserted a rule
        except InvalidInput:
            await self.mark_deleted(rule.tenant, rule.id)
            raise

    async def check_limit(self, rule: Rule) -> None:
        """Raise `InvalidInput` when the other rules of the device or product reach the limit."""
        kind = "product" if rule.device is None else "device"
        maximum = getattr(await self._limits.fetch(rule.tenant), f"{kind}_rules")
        others = {"tenant": rule.tenant, "ending": False, "_id": {"$ne": rule.id}}
        others[kind] = getattr(rule, kind)
        if await self._rules.count_documents(others, limit=maximum) >= maximum:
            count_rejection(f"{kind}Rules", rule.tenant)
            text = f"{kind}Rules: the {kind} has {maximum} alarm rules, the maximum"
            raise InvalidInput(text, field="device_id", code="alarm_rule_number_limitation")

    async def find(self, tenant: str, rule_id: int) -> Rule | None:
        """Return a rule of the tenant, or None."""
        document = await self._rules.find_one({"_id": rule_id, "tenant": tenant, "ending": False})
        return None if document is None else from_document(document, Rule)

    async def replace(self, rule: Rule, expected_updated_at: int) -> bool:
        """Replace a rule if its `updated_at` is the expected one (ms); return False otherwise."""
        self._wakeups.notify(ALARMS_TOPIC)
        query = {"_id": rule.id, "updatedAt": expected_updated_at, "ending": False}
        return bool((await self._rules.replace_one(query, to_document(rule))).matched_count)

    async def mark_deleted(self, tenant: str, rule_id: int) -> bool:
        """Hide a rule, and let the evaluator end its alarms; return False if it does not exist."""
        self._wakeups.notify(ALARMS_TOPIC)
        query = {"_id": rule_id, "tenant": tenant, "ending": False}
        change = {"$set": {"ending": True, "todo": True, "changed": now_ms()}}
        return bool((await self._rules.update_one(query, change)).matched_count)

    async def search(
        self, query: Document, order: list[tuple[str, int]], skip: int, limit: int
    ) -> tuple[list[Rule], int]:
        """Return a page of rules, and how many match."""
        query = {**query, "ending": False}
        rows, total = await find_page(self._rules, query, order, skip, limit)
        return [from_document(document, Rule) for document in rows], total

    async def list_active(self) -> list[Rule]:
        """Return the active rules of all tenants."""
        cursor = self._rules.find({"enabled": True, "ending": False})
        return [from_document(document, Rule) async for document in cursor]

    async def list_changed(self, since: int) -> list[Rule]:
        """Return rules written since a time (ms), including deleted ones."""
        cursor = self._rules.find({"changed": {"$gte": since}})
        return [from_document(document, Rule) async for document in cursor]

    async def list_active_for_devices(
        self, tenant: str, product_by_device: Mapping[int, str]
    ) -> list[Rule]:
        """Return the active rules of devices and of their products."""
        targets = [
            {"device": {"$in": list(product_by_device)}},
            {"product": {"$in": list(set(product_by_device.values()))}},
        ]
        query = {"tenant": tenant, "enabled": True, "ending": False, "$or": targets}
        return [from_document(document, Rule) async for document in self._rules.find(query)]

    async def find_all(self, ids: Sequence[int]) -> dict[int, Rule]:
        """Return rules by id, including inactive rules and deleted ones that are still stored."""
        cursor = self._rules.find({"_id": {"$in": list(ids)}})
        return {document["_id"]: from_document(document, Rule) async for document in cursor}

    async def list_pending_tenants(self) -> list[str]:
        """Return the tenants of rules that `list_pending_changes` returns."""
        return list(await self._rules.distinct("tenant", {"todo": True}))

    async def list_pending_changes(self, tenant: str) -> list[Rule]:
        """Return changed rules whose states must be ended or created."""
        query = {"todo": True, "tenant": tenant}
        return [from_document(document, Rule) async for document in self._rules.find(query)]

    async def finish_change(self, rule: Rule) -> None:
        """Record that the states of a rule are up to date, or remove a rule that is deleted.

        A deleted rule stays stored for `DELETED_RULE_RETENTION_MS`.
        """
        query: dict[str, Any] = {"_id": rule.id, "updatedAt": rule.updated_at}
        if rule.is_deleting:
            if rule.changed < now_ms() - DELETED_RULE_RETENTION_MS:
                await self._rules.delete_one(query)
        else:
            await self._rules.update_one({**query, "ending": False}, {"$unset": {"todo": ""}})

    async def mark_deleted_for_device(self, tenant: str, device_id: int) -> None:
        """Hide the rules of a deleted device, and let the evaluator end their states."""
        self._wakeups.notify(ALARMS_TOPIC)
        change = {"$set": {"ending": True, "todo": True, "changed": now_ms()}}
        await self._rules.update_many({"tenant": tenant, "device": device_id}, change)


SORT_FIELD_BY_COLUMN = {
    "id": "_id",
    "name": "name",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}
"""Stored field of each sort key of rules."""


@dataclass(frozen=True)
class AlarmRuleService:
    """Operations of users on rules."""

    store: RuleStore
    devices: DeviceStore
    products: ProductStore
    grants: GrantReader

    async def search(self, principal: Principal, request: SearchRules) -> Page[AlarmRuleResponse]:
        """Return a page of the rules that the user may see."""
        grants = await self.grants.read(principal)
        query: Document = {"tenant": principal.tenant}
        if not grants.everything:
            visible = await self.devices.queries.list_granted_ids(
                principal.tenant, granted_condition(grants)
            )
            query["$and"] = [{"device": {"$in": visible}}]
        if request.keyword:
            query["name"] = build_text_condition(request.keyword)
        if request.device_id is not None:
            query["device"] = request.device_id
        if request.product is not None:
            query["product"] = request.product
        if request.enabled is not None:
            query["enabled"] = request.enabled
        order = request.order(SORT_FIELD_BY_COLUMN)
        rules, total = await self.store.search(query, order, request.skip, request.size)
        rows = [_rule_response(rule) for rule in rules]
        return Page(page_size=request.size, page_number=request.number, total=total, content=rows)

    async def get(self, principal: Principal, rule_id: int) -> AlarmRuleResponse:
        """Return a rule; raise `NotFound`."""
        return _rule_response(await self._find(principal, rule_id))

    async def create(self, principal: Principal, body: PutRule) -> int:
        """Create a rule and return its id.

        Raises `InvalidInput`, `NotFound`, `Forbidden` or `TooManyRequests`.
        """
        now = now_ms()
        target = await self._resolve_target(principal, body)
        rule = Rule(
            id=await self.store.new_id(),
            tenant=principal.tenant,
            name=body.name.strip(),
            severity=body.severity,
            condition=_validate_condition(body.condition),
            enabled=body.enabled,
            has_pending_states=True,
            created_at=now,
            updated_at=now,
            changed=now,
            **target,
        )
        await self.store.insert(rule)
        return rule.id

    async def replace(self, principal: Principal, rule_id: int, body: PutRule) -> None:
        """Replace a rule; a change of condition, device, product or `enabled` ends its alarms.

        Raises `InvalidInput`, `NotFound`, `Forbidden`, or `Conflict` if another request changed the
        rule at the same time.
        """
        before = await self._find(principal, rule_id)
        target = await self._resolve_target(principal, body)
        now = max(now_ms(), before.updated_at + 1)
        rule = msgspec.structs.replace(
            before,
            name=body.name.strip(),
            severity=body.severity,
            condition=_validate_condition(body.condition),
            enabled=body.enabled,
            updated_at=now,
            changed=now,
            **{"device": None, "product": None, **target},
        )
        if _evaluated_fields(rule) != _evaluated_fields(before):
            rule.generation, rule.has_pending_states = before.generation + 1, True
            if (rule.device, rule.product) != (before.device, before.product):
                await self.store.check_limit(rule)
        if not await self.store.replace(rule, before.updated_at):
            raise Conflict(
                "the rule was changed at the same time: read it and repeat the request",
                field="rule_id",
            )

    async def delete(self, principal: Principal, rule_id: int) -> None:
        """Delete a rule and end its alarms; raise `NotFound`."""
        await self._find(principal, rule_id)
        if not await self.store.mark_deleted(principal.tenant, rule_id):
            raise rule_not_found(rule_id)

    async def _find(self, principal: Principal, rule_id: int) -> Rule:
        grants = await self.grants.read(principal)
        rule = await self.store.find(principal.tenant, rule_id)
        if rule is None or not (
            grants.everything
            or (rule.device and await self._may_see(principal, grants, rule.device))
        ):
            raise rule_not_found(rule_id)
        return rule

    async def _resolve_target(self, principal: Principal, body: PutRule) -> dict[str, Any]:
        """Return the field with the device or product of a rule.

        Raises `NotFound` or `Forbidden` for a hidden target, and `InvalidInput` unless the body has
        either a device or a product.
        """
        if (body.device_id is None) == (body.product is None):
            raise InvalidInput("either device_id or product is required", field="device_id")
        grants = await self.grants.read(principal)
        if body.device_id is not None:
            if not await self._may_see(principal, grants, body.device_id):
                raise NotFound(f"device {body.device_id} not found", field="device_id")
            return {"device": body.device_id}
        if not grants.everything:
            text = "rules of a product require access to all devices"
            raise Forbidden(text, field="product")
        if await self.products.find(principal.tenant, str(body.product)) is None:
            raise NotFound(f"product {body.product} not found", field="product")
        return {"product": body.product}

    async def _may_see(self, principal: Principal, grants: Grants, device_id: int) -> bool:
        devices = await self.devices.queries.list_by_ids(principal.tenant, [device_id])
        return any(
            grants.allows_device(device.id, device.integration, device.group) for device in devices
        )


def _evaluated_fields(rule: Rule) -> tuple[Any, ...]:
    return rule.device, rule.product, rule.condition, rule.enabled


def _validate_condition(condition: RuleCondition) -> RuleCondition:
    """Return a valid condition; raise `InvalidInput`."""
    if isinstance(condition, EventCondition) and condition.event == condition.ended_by:
        raise InvalidInput("must be another event", field="condition.ended_by")
    if isinstance(condition, ValueCondition):
        ordered = condition.comparison not in ("EQ", "NE")
        number = not isinstance(condition.threshold, (bool, str))
        if ordered and not number:
            text = "must be EQ or NE for a threshold that is not a number"
            raise InvalidInput(text, field="condition.comparison")
        if condition.hysteresis and not ordered:
            text = "requires the comparison GT, GTE, LT or LTE"
            raise InvalidInput(text, field="condition.hysteresis")
    return condition


def _rule_response(rule: Rule) -> AlarmRuleResponse:
    return AlarmRuleResponse.from_fields(
        rule, device_id=None if rule.device is None else str(rule.device)
    )
