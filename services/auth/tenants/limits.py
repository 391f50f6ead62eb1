"""What each tenant may use, and what it uses: the defaults, and what the operator set otherwise."""

from typing import Any

import msgspec

from libs.common.clock import to_ms
from libs.common.contracts.limits import AskUse, GetLimits, Limits, SetLimits, TenantLimits
from libs.common.decoding import worded
from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Principal
from libs.common.limits.use import UseQuestions
from services.auth.accounts.tenants import TenantStore
from services.auth.audit.schemas import Deed, Subject
from services.auth.changes import Change, Changes, operator
from services.auth.tenants.schemas import EventPurge, LimitUse, TenantUse

NAMES = Limits.__struct_encode_fields__
"""The limits as they are called on the wire, in camelCase."""


class TenantLimitsService:
    """Tells and changes the limits of tenants."""

    def __init__(
        self, changes: Changes, store: TenantStore, defaults: Limits, questions: UseQuestions
    ) -> None:
        self._changes = changes
        self._store = store
        self._defaults = defaults
        self._questions = questions

    async def get(self, wanted: GetLimits) -> TenantLimits:
        """The limits of a tenant; of one that does not exist the defaults."""
        return self._together(await self._store.own_limits(wanted.tenant) or {})

    async def set(self, wanted: SetLimits) -> TenantLimits:
        """Change limits; raise `InvalidInput` that names the limit, `NotFound` without tenant."""
        for name, value in wanted.limits.items():
            _check(name, value)

        async def work(change: Change) -> dict[str, int]:
            before = await self._store.own_limits(wanted.tenant, change.session)
            if before is None:
                raise NotFound(f"there is no tenant {wanted.tenant}", field="tenant")
            both = {**before, **wanted.limits}
            after = {name: value for name, value in both.items() if value is not None}
            if after != before:
                await self._store.set_limits(wanted.tenant, after, change.session)
                subject = Subject("tenant", wanted.tenant, wanted.tenant)
                change.record(Deed(action="limited", subject=subject, before=before, after=after))
            return after

        return self._together(await self._changes.run(operator(wanted.tenant), work))

    async def use(self, caller: Principal) -> TenantUse:
        """The limits of a caller and its tenant, with use; raise as `UseQuestions.ask` does."""
        asked = AskUse(caller.tenant, caller.kind, caller.subject)
        used = {**await self._questions.ask(asked), **await self._store.used(caller.tenant)}
        known = await self.get(GetLimits(caller.tenant))
        limits: dict[str, int] = msgspec.to_builtins(known.limits)
        purge = await self._store.last_purge(caller.tenant)
        return TenantUse(
            caller.tenant,
            [
                LimitUse(name, most, own=name in known.own, used=used.get(name))
                for name, most in limits.items()
            ],
            EventPurge(to_ms(purge["at"]), purge["share"], purge["events"]) if purge else None,
        )

    def _together(self, stored: dict[str, int]) -> TenantLimits:
        own: dict[str, Any] = {name: stored[name] for name in NAMES if name in stored}
        both = msgspec.to_builtins(self._defaults) | own
        return TenantLimits(msgspec.convert(both, Limits), own)


def _check(name: str, value: int | None) -> None:
    if name not in NAMES:
        raise InvalidInput(f"there is no limit {name}; there are {', '.join(NAMES)}", field=name)
    try:
        msgspec.convert({} if value is None else {name: value}, Limits)
    except msgspec.ValidationError as error:
        raise InvalidInput(worded(str(error)).reason, field=name) from error
