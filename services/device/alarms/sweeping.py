"""What time does to alarms: silences, durations, and rules that have changed.

One replica at a time does it. Everything that is due stands in the states, so whoever goes on after
a crash does what is left, with the times at which it was due.
"""

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass

from libs.common.clock import now_ms
from libs.common.errors import Unavailable
from libs.common.store.mongo import StoreError
from services.device.alarms.deciding import decide_silence
from services.device.alarms.evaluating import Evaluator
from services.device.alarms.index import compiled
from services.device.alarms.model import Rule, SilenceCondition, State
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.things.latest import LatestValues
from services.device.things.store import DeviceStore

PERIOD = 0.5
"""Seconds between two looks."""
CHUNK = 500

log = logging.getLogger(__name__)


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
        while True:
            try:
                for rule in await self.rules.to_do():
                    await self._follow(rule)
                more = await self.look()
            except (StoreError, Unavailable) as error:
                log.warning("alarms that are due wait: %s", error)
                more = False
            if not more:
                await asyncio.sleep(PERIOD)

    async def look(self) -> bool:
        """Look at some states that are due; whether there may be more."""
        states = await self.alarms.due(now_ms(), CHUNK)
        if not states:
            return False
        rules = await self.rules.some(list({state.rule for state in states}))
        still: dict[int, list[State]] = defaultdict(list)
        silences: dict[int, SilenceCondition] = {}
        for state in states:
            rule = rules.get(state.rule)
            if rule is None or not rule.alive or rule.generation != state.generation:
                await self.alarms.end(state)
            elif isinstance(rule.condition, SilenceCondition) and state.status == "NORMAL":
                still[rule.id].append(state)
                silences[rule.id] = rule.condition
            else:
                await self.evaluator.again(compiled(rule), state)
        for rule_id, some in still.items():
            await self._look_at_silences(rules[rule_id], silences[rule_id], some)
        return len(states) == CHUNK

    async def _look_at_silences(
        self, rule: Rule, silence: SilenceCondition, states: list[State]
    ) -> None:
        """Those that have reported are looked at later, together; the others are carried on."""
        newest = await self.latest.arrivals([state.device for state in states])
        later: list[tuple[State, int]] = []
        for state in states:
            after, changes = decide_silence(silence, state, newest.get(state.device), now_ms())
            if changes or after.due is None:
                await self.evaluator.again(compiled(rule), state)
            else:
                later.append((state, after.due))
        if later:
            await self.alarms.postpone(later)

    async def _follow(self, rule: Rule) -> None:
        """End what a rule did as it was before; begin to watch the devices of a silence."""
        while states := await self.alarms.outdated(rule, CHUNK):
            for state in states:
                await self.alarms.end(state)
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
