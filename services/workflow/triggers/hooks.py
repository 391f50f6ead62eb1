"""Addresses that begin flows when they are called (`httpIn`).

`hooks` has one document for each flow that runs and begins with a request: `{_id: flow id, tenant,
token, method, shape, flow}`. `token` is a SHA-256 of what the open address ends with, unique over
all tenants, and random bytes where there is none; `method` and `shape` are those of the address for
who logs in, when there is one; `flow` is the JSON of `Deployed`, without the token.
"""

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from pymongo.errors import DuplicateKeyError

from libs.common.errors import (
    Conflict,
    MalformedRequest,
    NotFound,
    TooManyRequests,
    Unauthenticated,
)
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database, Document, Session
from libs.common.telemetry.tracing import current_trace
from services.workflow.credentials.service import TenantCredentials
from services.workflow.credentials.store import CredentialsType
from services.workflow.engine.runner import Engine, Start
from services.workflow.flows.model import Deployments, Flow
from services.workflow.graph.design import DesignNode
from services.workflow.nodes.http_in import HttpIn, HttpInParameters, segments_of, shapes_of
from services.workflow.nodes.parameters import read, read_valid
from services.workflow.runs.model import Cause, Deployed

MOST_OF_ONE = 20
"""Flows that one address may begin."""

_decode = msgspec.json.Decoder(Deployed).decode
TOKEN = "token"  # noqa: S105 - the name of a field
FAILURES = 20
"""Failures of an address in a row; then one in `PAUSE` seconds, right or wrong."""
PAUSE = 1.0
KEPT = 10_000
"""Most addresses whose failures a process remembers."""


class HookStore:
    """Reads and writes hooks."""

    def __init__(self, database: Database) -> None:
        self._hooks = database["hooks"]

    async def owner(self, digest: bytes) -> int | None:
        """The flow that a token begins."""
        found = await self._hooks.find_one({"token": digest}, {"_id": 1})
        return None if found is None else int(found["_id"])

    async def find(self, digest: bytes) -> Deployed | None:
        """The flow that a token begins, as it runs."""
        found = await self._hooks.find_one({"token": digest})
        return None if found is None else _decode(found["flow"])

    async def called(self, tenant: str, method: str, shapes: Sequence[str]) -> list[Deployed]:
        """The flows of a tenant whose address has one of the shapes, the oldest first."""
        query = {"tenant": tenant, "method": method, "shape": {"$in": list(shapes)}}
        found = self._hooks.find(query, sort=[("_id", 1)], limit=MOST_OF_ONE)
        return [_decode(one["flow"]) async for one in found]

    async def any_address(self, tenant: str) -> bool:
        """Whether any flow of a tenant has an address for those who log in."""
        query = {"tenant": tenant, "method": {"$exists": True}}
        return await self._hooks.find_one(query, {"_id": 1}) is not None

    async def others(self, tenant: str, flow_id: int, method: str, shape: str) -> int:
        """How many other flows have an address."""
        query = {"tenant": tenant, "method": method, "shape": shape, "_id": {"$ne": flow_id}}
        return await self._hooks.count_documents(query, limit=MOST_OF_ONE)

    async def put(
        self, flow: Deployed, digest: bytes, address: tuple[str, str] | None, session: Session
    ) -> None:
        """Set the hook of a flow, with method and shape of its address, if it has one.

        Raises `Conflict` when another flow has the token.
        """
        key = {"_id": flow.flow_id, "tenant": flow.tenant}
        fields: Document = {"token": digest, "flow": msgspec.json.encode(flow)}
        if address is not None:
            fields |= {"method": address[0], "shape": address[1]}
        try:
            await self._hooks.replace_one(key, key | fields, upsert=True, session=session)
        except DuplicateKeyError as error:
            raise Conflict("another flow has this token; make a new one", field="token") from error

    async def remove(self, tenant: str, flow_id: int, session: Session) -> None:
        """Drop the hook of a flow."""
        await self._hooks.delete_one({"_id": flow_id, "tenant": tenant}, session=session)


async def create_indexes(database: Database) -> None:
    """What lookups need."""
    await database["hooks"].create_index("token", unique=True)
    await create_address_index(database)


async def create_address_index(database: Database) -> None:
    """What lookups of addresses need."""
    await database["hooks"].create_index([("tenant", 1), ("method", 1), ("shape", 1)])


class HookDeployments(Deployments):
    """Lets hooks come and go with flows."""

    def __init__(self, hooks: HookStore) -> None:
        self._hooks = hooks

    async def prepare(self, flow: Flow, entry: DesignNode) -> None:
        """Raise `Conflict` when another flow has the token already, or many have the address."""
        if entry.component_name != HttpIn.name:
            return
        token = (entry.data.parameters or {}).get(TOKEN)
        if token and isinstance(token, str):
            owner = await self._hooks.owner(digest_of(token))
            if owner not in (None, flow.id):
                raise Conflict("another flow has this token; make a new one", field=TOKEN)
        if (address := _address(entry.data.parameters)) is not None:
            others = await self._hooks.others(flow.tenant, flow.id, *address)
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


def _address(parameters: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """Method and shape of the address of an entry; None when it has none, or cannot be read."""
    found = read_valid(HttpInParameters, parameters)
    if found is None or found.address is None:
        return None
    return found.method, found.address.shape


def digest_of(token: str) -> bytes:
    """What is kept of a token: it is random, so a plain digest does not give it away."""
    return hashlib.sha256(token.encode()).digest()


class HttpLogins:
    """Looks logins up, and slows down who guesses; each replica for itself."""

    def __init__(self, credentials: TenantCredentials) -> None:
        self._credentials = credentials
        self._failures: LruCache[str, tuple[int, float]] = LruCache(KEPT)
        """By address: how many, and when the last one was."""

    async def tenant(self, access_key: str, login: tuple[str, str] | None, address: str) -> str:
        """The tenant of an access key and its secret.

        Raises `Unauthenticated`, and `TooManyRequests` for an address that has failed too often.
        """
        failed, last = self._failures.get(address) or (0, 0.0)
        if failed >= FAILURES and time.monotonic() < last + PAUSE:
            raise TooManyRequests("too many wrong logins", retry_after=PAUSE)
        if login is None or login[0] != access_key:
            raise Unauthenticated("the access key and its secret are needed: Authorization: Basic")
        tenant = await self._credentials.login(CredentialsType.HTTP, *login)
        if tenant is None:
            self._failures.put(address, (failed + 1, time.monotonic()))
            raise Unauthenticated("the access key or its secret is wrong")
        self._failures.pop(address)
        return tenant
