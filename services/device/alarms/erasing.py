"""Removes values of alarms whose property has become write-only (decision 0044)."""

from dataclasses import dataclass

from libs.common.tsl import Tsl
from services.device.alarms.model import Condition, ValueCondition, state_key
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.store import AlarmStore


@dataclass(frozen=True)
class AlarmEraser:
    """Looks at the rules of alarms to tell which values must not be read."""

    alarms: AlarmStore
    rules: RuleStore

    async def erase(self, device_id: int, tsl: Tsl) -> bool:
        """Remove values of alarms and states of a device; return whether there were any.

        A value stays when its rule is as it was then and watches what can be read: of a rule
        that has changed or is gone nobody knows what it watched.
        """
        rules = await self.rules.some(await self.alarms.rules_with_values(device_id))
        kept = [
            state_key(rule.id, rule.generation, device_id)
            for rule in rules.values()
            if not _is_hidden(rule.condition, tsl)
        ]
        return await self.alarms.erase_values(device_id, kept)


def _is_hidden(condition: Condition, tsl: Tsl) -> bool:
    """Return whether a condition compares a write-only value."""
    return isinstance(condition, ValueCondition) and not tsl.readable({condition.property: 0})
