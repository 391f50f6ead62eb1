"""Rules on behalf of users: those of devices that they see; of products, who sees everything."""

from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import Conflict, Forbidden, InvalidInput, NotFound
from libs.common.http.console import Page
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from libs.common.store.mongo import Document, containing
from services.device.alarms.errors import rule_not_found
from services.device.alarms.model import Condition, EventCondition, Rule, ValueCondition
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.schemas import PutRule, SearchRules, ShownRule
from services.device.things.device_store import DeviceStore
from services.device.things.product_store import ProductStore
from services.device.things.visibility import seen

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
    return ShownRule(
        id=str(rule.id),
        name=rule.name,
        severity=rule.severity,
        condition=rule.condition,
        device_id=None if rule.device is None else str(rule.device),
        product=rule.product,
        enabled=rule.enabled,
        created_at=rule.created_at,
        updated_at=rule.updated_at,
    )
