"""Plans of the versions that run, compiled once in a process."""

import asyncio
from collections import OrderedDict
from typing import Protocol

from libs.common.errors import NotFound
from services.workflow.graph.plan import Plan, compile_design
from services.workflow.nodes.base import Registry

KEPT = 2_000
"""Most plans in memory."""


class Designs(Protocol):
    """Where designs are."""

    async def design(self, tenant: str, flow_id: int, version: int) -> str | None:
        """`design_data` of a version, whichever is the newest."""


class Plans:
    """Finds plans by flow and version; a version never changes."""

    def __init__(self, designs: Designs, registry: Registry) -> None:
        self._designs = designs
        self._registry = registry
        self._known: OrderedDict[tuple[int, int], Plan] = OrderedDict()
        self._reading = asyncio.Lock()
        """One at a time: hundreds of runs of a flow ask for its plan at once."""

    async def of(self, tenant: str, flow_id: int, version: int) -> Plan:
        """The plan; raise `NotFound`, or `DesignInvalid` for what can no longer run."""
        key = (flow_id, version)
        if key not in self._known:
            async with self._reading:
                if key not in self._known:
                    self._known[key] = await self._read(tenant, flow_id, version)
                    if len(self._known) > KEPT:
                        self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    async def _read(self, tenant: str, flow_id: int, version: int) -> Plan:
        text = await self._designs.design(tenant, flow_id, version)
        if text is None:
            raise NotFound(f"flow {flow_id} has no version {version}", field="version")
        return compile_design(text, self._registry)
