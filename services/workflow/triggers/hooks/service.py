"""Keeps the hooks of flows, and runs flows whose address was called."""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec

from libs.common.errors import Conflict, MalformedRequest, NotFound
from libs.common.store.mongo import Session
from libs.common.telemetry.tracing import current_trace
from services.workflow.engine.runner import Engine, Start
from services.workflow.flows.model import Deployments, SavedFlow
from services.workflow.nodes.http_in import HttpIn, HttpInParameters, segments_of, shapes_of
from services.workflow.nodes.reading import read
from services.workflow.runs.records import Cause, Deployed
from services.workflow.triggers.hooks.store import MOST_OF_ONE, HookStore

TOKEN = "token"  # noqa: S105 - the name of a field


class HookBook(Deployments):
    """Lets hooks come and go with flows."""

    def __init__(self, hooks: HookStore) -> None:
        self._hooks = hooks

    async def prepare(self, flow: SavedFlow) -> None:
        """Raise `Conflict` when another flow has the token already, or many have the address."""
        if flow.component != HttpIn.name:
            return
        token = flow.parameters.get(TOKEN)
        if token and isinstance(token, str):
            owner = await self._hooks.owner(digest_of(token))
            if owner not in (None, flow.flow_id):
                raise Conflict("another flow has this token; make a new one", field=TOKEN)
        address = _address(flow.parameters)
        if address is None:
            return
        others = await self._hooks.others(flow.tenant, flow.flow_id, *address)
        if others >= MOST_OF_ONE:
            raise Conflict(f"{others} flows have this address, and no more may", field="url")

    async def apply(
        self, tenant: str, flow_id: int, deployed: Deployed | None, session: Session
    ) -> None:
        """Keep the hook of a flow that runs, drop that of one that does not."""
        if deployed is None or deployed.component != HttpIn.name:
            await self._hooks.remove(tenant, flow_id, session)
            return
        parameters = read(HttpInParameters, deployed.parameters)
        kept = {name: one for name, one in deployed.parameters.items() if name != TOKEN}
        without = msgspec.structs.replace(deployed, parameters=kept)
        token = parameters.token
        digest = digest_of(token) if token else secrets.token_bytes(32)  # which is no token's
        await self._hooks.put(without, digest, _address(deployed.parameters), session)


class HookCaller:
    """Begins flows."""

    def __init__(self, hooks: HookStore, engine: Engine) -> None:
        self._hooks = hooks
        self._engine = engine
        self._entry = HttpIn()

    async def call(self, token: str, given: Mapping[str, Any], hops: int) -> int:
        """Record a run and let it go; its id. Raises `NotFound`, and `TooManyRequests`.

        A token that belongs to no flow that runs is not told from one that belongs to none.
        """
        flow = await self._hooks.find(digest_of(token))
        if flow is None:
            raise NotFound("no flow that runs has this address", field=TOKEN)
        return await self._begin(flow, dict(given), hops)

    async def call_address(
        self, tenant: str, method: str, path: str, given: Mapping[str, Any], hops: int
    ) -> list[int]:
        """Begin the flows of a tenant whose address a request calls; the ids of the runs.

        Raises `MalformedRequest` without a path, or when no flow has an address at all, and
        `TooManyRequests`.
        """
        if not segments_of(path) or not await self._hooks.any_address(tenant):
            raise MalformedRequest("no flow has an address like this", field="url")
        runs = []
        for flow in await self._hooks.called(tenant, method, shapes_of(path)):
            parameters = read(HttpInParameters, flow.parameters)
            variables = parameters.address.variables(path) if parameters.address else {}
            entered = self._entry.entered(parameters, {**given, "pathParam": variables})
            runs.append(await self._begin(flow, entered, hops))
        return runs

    async def _begin(self, flow: Deployed, entered: dict[str, Any], hops: int) -> int:
        cause = Cause(kind="HTTP", key=f"h-{uuid4().hex}", hops=hops, trace=current_trace())
        run = await self._engine.begin(Start(flow, entered, cause))
        self._engine.go(run)
        return run.id


def _address(parameters: Mapping[str, Any]) -> tuple[str, str] | None:
    """Method and shape of the address of an entry; None when it has none, or cannot be read."""
    try:
        found = read(HttpInParameters, parameters)
    except msgspec.ValidationError:
        return None
    if found.address is None or any(found.faults()):
        return None
    return found.method, found.address.shape


def digest_of(token: str) -> bytes:
    """What is kept of a token: it is random, so a plain digest does not give it away."""
    return hashlib.sha256(token.encode()).digest()
