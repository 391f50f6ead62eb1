"""What time does to alarms: silences, durations, and rules that have changed.

One replica at a time does it, for each tenant in its turn. Everything that is due stands in the
states, so the next replica does what is left after a crash, with the times at which it was due.
"""

from dataclasses import dataclass

from libs.common.clock import now_ms
from libs.common.scheduling.turns import Steps, take_turns
from services.device.alarms.decision import decide_silence
from services.device.alarms.evaluator import Evaluator
from services.device.alarms.model import Rule, SilenceCondition, State
from services.device.alarms.rules import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.telemetry.latest_values import LatestValues
from services.device.things.device_store import DeviceStore

PERIOD = 0.5
"""Seconds between two looks."""
CHUNK = 500
"""States of a tenant that are looked at in one turn."""
WORKERS = 8
"""Turns of tenants at the same time."""


@dataclass(frozen=True)
class Sweep:
    """Looks at what is due."""

    rules: RuleStore
    alarms: AlarmStore
    evaluator: Evaluator
    devices: DeviceStore
    latest: LatestValues

    async def run(self) -> None:
        """Look for ever; run by the lease holder."""
        await take_turns("due alarms", WORKERS, self._tenants, self._steps, PERIOD)

    async def _tenants(self) -> set[str]:
        return {*await self.rules.tenants_to_do(), *await self.alarms.tenants_due(now_ms())}

    async def _steps(self, tenant: str) -> Steps:
        """Do what is due of a tenant."""
        for rule in await self.rules.to_do(tenant):
            await self._follow(rule)
            yield
        while await self.look(tenant):
            yield

    async def look(self, tenant: str) -> bool:
        """Look at some states of a tenant that are due; whether there may be more."""
        states = await self.alarms.due(tenant, now_ms(), CHUNK)
        rules = await self.rules.some(list({state.rule for state in states}))
        due: list[tuple[Rule, State]] = []
        quiet: list[tuple[Rule, State]] = []
        ended: list[State] = []
        for state in states:
            rule = rules.get(state.rule)
            if rule is None or not rule.alive or rule.generation != state.generation:
                ended.append(state)
            elif isinstance(rule.condition, SilenceCondition) and state.status == "NORMAL":
                quiet.append((rule, state))
            else:
                due.append((rule, state))
        await self.alarms.end(ended, gone=True)
        await self.evaluator.again(tenant, [*due, *await self._silent(quiet)])
        return len(states) == CHUNK

    async def _silent(self, states: list[tuple[Rule, State]]) -> list[tuple[Rule, State]]:
        """Postpone the states of devices that have reported; return the others."""
        newest = await self.latest.arrivals([state.device for _, state in states])
        later, silent = list[tuple[State, int]](), list[tuple[Rule, State]]()
        for rule, state in states:
            if isinstance(silence := rule.condition, SilenceCondition):
                heard = newest.get(state.device)
                after, changes = decide_silence(silence, state, heard, now_ms())
                if changes or after.due is None:
                    silent.append((rule, state))
                else:
                    later.append((state, after.due))
        await self.alarms.postpone(later)
        return silent

    async def _follow(self, rule: Rule) -> None:
        """End what a rule did as it was before; begin to watch the devices of a silence."""
        while states := await self.alarms.outdated(rule, CHUNK):
            await self.alarms.end(states, gone=True)
        if rule.alive and isinstance(rule.condition, SilenceCondition):
            await self._watch(rule)
        await self.rules.done(rule)

    async def _watch(self, rule: Rule) -> None:
        if rule.device is not None:
            await self.alarms.watch_silences(rule, [rule.device], rule.updated_at)
            return
        after = 0
        while ids := await self.devices.lists.of_product(
            rule.tenant, str(rule.product), after, CHUNK
        ):
            await self.alarms.watch_silences(rule, ids, rule.updated_at)
            after = ids[-1]
