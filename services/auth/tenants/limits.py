"""Limits of tenants and their usage: defaults, and individual limits."""

from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.clock import to_ms
from libs.common.contracts.limits import GetLimits, Limits, SetLimits, TenantLimits, UsageRequest
from libs.common.decoding import parse_validation_error
from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Principal
from libs.common.limits.usage import UsageCollector
from services.auth.accounts.tenants import TenantStore
from services.auth.audit import Subject
from services.auth.changes import Change, Changes, operator

NAMES = Limits.__struct_encode_fields__
"""Names of the limits on the wire, in camelCase."""


class LimitUse(msgspec.Struct, omit_defaults=True):
    """A limit and its usage. Limits named `each…` apply to one principal: the caller."""

    name: str
    limit: int
    """Maximum."""
    own: bool = False
    """Whether the operator set it for this tenant."""
    used: int | float | None = None
    """Current usage. Absent if it is not counted."""


class EventPurge(msgspec.Struct):
    """The latest purge of events beyond the tenant's share of `EVENTS`."""

    at: int
    """Time in ms."""
    share: int
    """Maximum bytes of the tenant's events at that time."""
    events: int
    """Number of events purged before they expired, in all purges."""


class TenantUse(msgspec.Struct, omit_defaults=True):
    """The limits that apply to the caller."""

    tenant: str
    limits: list[LimitUse]
    event_purge: EventPurge | None = None
    """Absent if no events were purged."""


@dataclass(frozen=True)
class TenantLimitsService:
    """Returns and changes the limits of tenants."""

    changes: Changes
    tenants: TenantStore
    defaults: Limits
    questions: UsageCollector

    async def get(self, wanted: GetLimits) -> TenantLimits:
        """Return the limits of a tenant; the defaults if it does not exist."""
        return self._merge_defaults(await self.tenants.own_limits(wanted.tenant) or {})

    async def set(self, wanted: SetLimits) -> TenantLimits:
        """Change limits; raise `InvalidInput` with the limit, or `NotFound`."""
        for name, value in wanted.limits.items():
            _check(name, value)

        async def set_limits(change: Change) -> dict[str, int]:
            before = await self.tenants.own_limits(wanted.tenant, change.session)
            if before is None:
                raise NotFound(f"tenant `{wanted.tenant}` does not exist", field="tenant")
            both = {**before, **wanted.limits}
            after = {name: value for name, value in both.items() if value is not None}
            if after != before:
                await self.tenants.set_limits(wanted.tenant, after, change.session)
                subject = Subject("tenant", wanted.tenant, wanted.tenant)
                change.record("limited", subject, before=before, after=after)
            return after

        return self._merge_defaults(await self.changes.run(operator(wanted.tenant), set_limits))

    async def get_usage(self, caller: Principal) -> TenantUse:
        """Return limits and usage of a caller and its tenant.

        Raises as `UseQuestions.ask`.
        """
        asked = UsageRequest(caller.tenant, caller.kind, caller.subject)
        used = {**await self.questions.ask(asked), **await self.tenants.count_usage(caller.tenant)}
        known = await self.get(GetLimits(caller.tenant))
        limits: dict[str, int] = msgspec.to_builtins(known.limits)
        purge = await self.tenants.last_purge(caller.tenant)
        return TenantUse(
            caller.tenant,
            [
                LimitUse(name, most, own=name in known.own, used=used.get(name))
                for name, most in limits.items()
            ],
            EventPurge(to_ms(purge["at"]), purge["share"], purge["events"]) if purge else None,
        )

    def _merge_defaults(self, stored: dict[str, int]) -> TenantLimits:
        own: dict[str, Any] = {name: stored[name] for name in NAMES if name in stored}
        both = msgspec.to_builtins(self.defaults) | own
        return TenantLimits(msgspec.convert(both, Limits), own)


def _check(name: str, value: int | None) -> None:
    if name not in NAMES:
        raise InvalidInput(f"unknown limit `{name}`; must be one of {', '.join(NAMES)}", field=name)
    try:
        msgspec.convert({} if value is None else {name: value}, Limits)
    except msgspec.ValidationError as error:
        raise InvalidInput(parse_validation_error(str(error)).reason, field=name) from error
