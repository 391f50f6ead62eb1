"""Joins the limits of a caller with what is used of them."""

import msgspec

from libs.common.contracts.limits import AskUse, GetLimits
from libs.common.identity import Principal
from libs.common.limits.use import UseQuestions
from services.auth.tenants.limits import TenantLimitsService
from services.auth.use.schemas import LimitUse, TenantUse


class UseService:
    """Tells callers what they may use, and what they do."""

    def __init__(self, limits: TenantLimitsService, questions: UseQuestions) -> None:
        self._limits = limits
        self._questions = questions

    async def of(self, caller: Principal) -> TenantUse:
        """The limits of the caller and of its tenant; raise as `UseQuestions.ask` does."""
        used = await self._questions.ask(AskUse(caller.tenant, caller.kind, caller.subject))
        known = await self._limits.get(GetLimits(caller.tenant))
        limits: dict[str, int] = msgspec.to_builtins(known.limits)
        return TenantUse(
            caller.tenant,
            [
                LimitUse(name, most, own=name in known.own, used=used.get(name))
                for name, most in limits.items()
            ],
        )
