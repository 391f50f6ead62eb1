"""Plans of deployed versions, compiled once per process."""

import sys
from collections import Counter, OrderedDict
from typing import NamedTuple

from libs.common.errors import NotFound
from libs.common.scheduling import Caps, FairScheduler
from services.workflow.flows.store import FlowStore
from services.workflow.graph.plan import Plan, compile_design
from services.workflow.nodes.base import NodeRegistry
from services.workflow.vault import Vault

MAX_CACHED_PLANS = 2_000
"""Maximum cached plans. Beyond it, the tenant whose designs have the most characters loses the plan
that was used longest ago."""
MAX_CACHED_CHARACTERS = 32 * 1024**2
"""Maximum characters of the designs of all cached plans."""
MAX_CONCURRENT_COMPILATIONS = 4
"""Maximum plans compiled concurrently."""


class _CachedPlan(NamedTuple):
    """A cached plan."""

    plan: Plan
    tenant: str
    size: int
    """Characters of the design."""


class PlanCache:
    """A cache of plans by flow and version; a version never changes."""

    def __init__(self, flows: FlowStore, vault: Vault, registry: NodeRegistry) -> None:
        self._flows = flows
        self._vault = vault
        self._registry = registry
        self._known: OrderedDict[tuple[int, int], _CachedPlan] = OrderedDict()
        self._sizes: Counter[str] = Counter()
        """Characters by tenant."""
        self._compilations = FairScheduler(
            "flow plans",
            MAX_CONCURRENT_COMPILATIONS,
            items=sys.maxsize,
            caps=lambda _: Caps(MAX_CONCURRENT_COMPILATIONS, sub=1),
        )
        """Any number of runs may wait for a plan, because `RunQueue` limits runs already."""

    async def get(self, tenant: str, flow_id: int, version: int) -> Plan:
        """Return the plan; raise `NotFound`, or `DesignInvalid` if it cannot run any more."""
        key = (flow_id, version)
        if key not in self._known:
            async with self._compilations.slot(tenant, sub=flow_id):
                if key not in self._known:
                    self._cache(key, await self._read_and_compile(tenant, flow_id, version))
        self._known.move_to_end(key)
        return self._known[key].plan

    async def _read_and_compile(self, tenant: str, flow_id: int, version: int) -> _CachedPlan:
        design = await self._flows.get_design(tenant, flow_id, version)
        if design is None:
            raise NotFound(f"flow {flow_id} has no version {version}", field="version")
        text = await self._vault.replace_marks_by_secrets(tenant, design)
        return _CachedPlan(compile_design(text, self._registry), tenant, len(text))

    def _cache(self, new_key: tuple[int, int], new: _CachedPlan) -> None:
        while (
            len(self._known) >= MAX_CACHED_PLANS
            or self._sizes.total() + new.size > MAX_CACHED_CHARACTERS
        ):
            maximum = max(self._sizes, key=self._sizes.__getitem__)
            oldest = next(key for key, known in self._known.items() if known.tenant == maximum)
            self._sizes[maximum] -= self._known.pop(oldest).size
            if not self._sizes[maximum]:
                del self._sizes[maximum]
        self._known[new_key] = new
        self._sizes[new.tenant] += new.size
