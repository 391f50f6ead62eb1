"""Keeps the hooks of flows, and runs flows whose address was posted to."""

import hashlib
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from libs.common.errors import Conflict, NotFound
from services.workflow.designs.ports import SavedFlow, Session
from services.workflow.engine.runner import Start
from services.workflow.nodes.http_in import HttpIn, HttpInParameters
from services.workflow.nodes.reading import read
from services.workflow.runs.records import Cause, Deployed, Run

TOKEN = "token"  # noqa: S105 - the name of a field


class Hooks(Protocol):
    """Keeps hooks."""

    async def owner(self, digest: bytes) -> int | None:
        """The flow that a token begins."""

    async def find(self, digest: bytes) -> Deployed | None:
        """The flow that a token begins, as it runs."""

    async def put(self, flow: Deployed, digest: bytes, session: Session) -> None:
        """Set the hook of a flow; raise `Conflict` when another flow has the token."""

    async def remove(self, tenant: str, flow_id: int, session: Session) -> None:
        """Drop the hook of a flow."""


class Engine(Protocol):
    """Runs flows."""

    async def begin(self, start: Start) -> Run:
        """Record a run; raise `TooManyRequests` when too many wait."""

    def go(self, run: Run) -> Awaitable[None]:
        """Carry out a run that is recorded, beside everything else."""


class HookBook:
    """Lets hooks come and go with flows; implements `designs.ports.Deployments`."""

    def __init__(self, hooks: Hooks) -> None:
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

    async def changed(self, tenant: str, flow_id: int) -> None:
        """Nothing is kept in memory here."""

    async def forget(self, tenant: str, flow_id: int) -> None:
        """`apply` has dropped it."""


class HookCaller:
    """Begins flows."""

    def __init__(self, hooks: Hooks, engine: Engine) -> None:
        self._hooks = hooks
        self._engine = engine

    async def call(self, token: str, given: Mapping[str, Any], hops: int) -> int:
        """Record a run and let it go; its id. Raises `NotFound`, and `TooManyRequests`.

        A token that belongs to no flow that runs is not told from one that belongs to none.
        """
        flow = await self._hooks.find(digest_of(token))
        if flow is None:
            raise NotFound("no flow that runs has this address", field=TOKEN)
        cause = Cause(kind="HTTP", key=f"h-{uuid4().hex}", hops=hops)
        run = await self._engine.begin(Start(flow, dict(given), cause))
        self._engine.go(run)
        return run.id


def digest_of(token: str) -> bytes:
    """What is kept of a token: it is random, so a plain digest does not give it away."""
    return hashlib.sha256(token.encode()).digest()
