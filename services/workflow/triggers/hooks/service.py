"""Keeps the hooks of flows, and runs flows whose address was posted to."""

import hashlib
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec

from libs.common.errors import Conflict, NotFound
from libs.common.store.mongo import Session
from libs.common.telemetry.tracing import current_trace
from services.workflow.engine.runner import Engine, Start
from services.workflow.flows.model import Deployments, SavedFlow
from services.workflow.nodes.http_in import HttpIn, HttpInParameters
from services.workflow.nodes.reading import read
from services.workflow.runs.records import Cause, Deployed
from services.workflow.triggers.hooks.store import HookStore

TOKEN = "token"  # noqa: S105 - the name of a field


class HookBook(Deployments):
    """Lets hooks come and go with flows."""

    def __init__(self, hooks: HookStore) -> None:
        self._hooks = hooks

    async def prepare(self, flow: SavedFlow) -> None:
        """Raise `Conflict` when another flow has the token already."""
        token = flow.parameters.get(TOKEN)
        if flow.component == HttpIn.name and isinstance(token, str):
            owner = await self._hooks.owner(digest_of(token))
            if owner not in (None, flow.flow_id):
                raise Conflict("another flow has this token; make a new one", field=TOKEN)

    async def apply(
        self, tenant: str, flow_id: int, deployed: Deployed | None, session: Session
    ) -> None:
        """Keep the hook of a flow that runs, drop that of one that does not."""
        if deployed is None or deployed.component != HttpIn.name:
            await self._hooks.remove(tenant, flow_id, session)
            return
        parameters = read(HttpInParameters, deployed.parameters)
        without = msgspec.structs.replace(deployed, parameters={})
        await self._hooks.put(without, digest_of(parameters.token), session)


class HookCaller:
    """Begins flows."""

    def __init__(self, hooks: HookStore, engine: Engine) -> None:
        self._hooks = hooks
        self._engine = engine

    async def call(self, token: str, given: Mapping[str, Any], hops: int) -> int:
        """Record a run and let it go; its id. Raises `NotFound`, and `TooManyRequests`.

        A token that belongs to no flow that runs is not told from one that belongs to none.
        """
        flow = await self._hooks.find(digest_of(token))
        if flow is None:
            raise NotFound("no flow that runs has this address", field=TOKEN)
        cause = Cause(kind="HTTP", key=f"h-{uuid4().hex}", hops=hops, trace=current_trace())
        run = await self._engine.begin(Start(flow, dict(given), cause))
        self._engine.go(run)
        return run.id


def digest_of(token: str) -> bytes:
    """What is kept of a token: it is random, so a plain digest does not give it away."""
    return hashlib.sha256(token.encode()).digest()
