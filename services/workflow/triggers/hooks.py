"""Calls of flows by HTTP (`httpIn`), and as services (`trigger`).

`hooks` has one document per deployed flow that starts with a request: `{_id: flow id, tenant,
token, method, shape, flow}`. `token` is the SHA-256 of the token in the open address, unique across
all tenants; random bytes for a flow without a token. Only a flow with an address that needs a login
has `method` and `shape`; the shape is the path with `{}` for each variable. `flow` is the JSON of
`DeployedFlow` without the token.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from libs.common.contracts.flows import CallFlow, FlowInput, FlowOutputs, PutFlowService
from libs.common.errors import (
    Conflict,
    InvalidInput,
    MalformedRequest,
    NotFound,
    ThingwayError,
    TooManyRequests,
    Unauthenticated,
    UpstreamFailed,
    UpstreamTimeout,
)
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database, Document, Session, raise_on_duplicate
from libs.common.telemetry.tracing import current_trace
from services.workflow.credentials.service import TenantCredentials
from services.workflow.credentials.store import CredentialsType
from services.workflow.engine.runner import Engine, FlowStart
from services.workflow.entities import Entities
from services.workflow.errors import NodeFailed
from services.workflow.flows.deployment import starts_with_trigger
from services.workflow.flows.model import DeploymentObserver, Flow
from services.workflow.flows.store import FlowStore
from services.workflow.graph.design import DesignNode
from services.workflow.nodes.http_in import (
    HttpIn,
    HttpInParameters,
    list_matching_shapes,
    split_path,
)
from services.workflow.nodes.parameters import convert_if_valid, convert_parameters
from services.workflow.nodes.triggers import Trigger, TriggerInput, TriggerParameters
from services.workflow.runs.model import Cause, DeployedFlow
from services.workflow.triggers.deployed_flows import DeployedFlowStore

CALL_ERROR_FIELD = "exchange"
"""Field of a service call that its errors name."""

MAX_CONCURRENT_CALLS = 4096
"""Maximum concurrent calls; one tenant may use half (`RpcServer`)."""

log = logging.getLogger(__name__)


class FlowServices(DeploymentObserver):
    """Keeps service entities in step with flows.

    The entity is created before the flow, so that a flow always has its entity, and is deleted
    after the flow. The entity of a disabled flow, or one left after a crash, rejects calls.
    """

    def __init__(self, entities: Entities, flows: FlowStore) -> None:
        self._entities = entities
        self._flows = flows

    async def prepare_entry(self, flow: Flow, entry: DesignNode) -> None:
        """Create or update the entity of a flow that starts with a trigger node.

        If the inputs of a draft are invalid, the entity does not change.
        """
        if entry.component_name != Trigger.name:
            return
        parameters = convert_if_valid(TriggerParameters, entry.data.parameters)
        if parameters is not None:
            service = PutFlowService(
                tenant=flow.tenant,
                flow_id=flow.id,
                name=flow.name,
                description=flow.remark,
                inputs=list(map(_build_flow_input, parameters.entity_configs)),
            )
            await self._entities.put_service(service)

    async def handle_stored(self, tenant: str, flow_id: int) -> None:
        """Delete the entity of a flow that starts with another node now."""
        flow = await self._flows.get(tenant, flow_id)
        if flow is not None and not starts_with_trigger(flow.design):
            await self.handle_deleted(tenant, flow_id)

    async def handle_deleted(self, tenant: str, flow_id: int) -> None:
        """Delete the entity of a flow; only log a failure, which `FlowSettler` repairs."""
        try:
            await self._entities.remove_service(tenant, flow_id)
        except ThingwayError as error:
            log.warning("the service of flow %d was not deleted: %s", flow_id, error)


class FlowCaller:
    """Runs flows that are called."""

    def __init__(self, deployed: DeployedFlowStore, engine: Engine) -> None:
        self._deployed = deployed
        self._engine = engine
        self._entry = Trigger()

    async def call_flow(self, request: CallFlow) -> FlowOutputs:
        """Run a flow and return the output of its run; no outputs if that is not a map.

        Raises `Conflict` for a disabled flow and `InvalidInput` for invalid inputs. Raises
        `UpstreamFailed` with the reason if the run failed, and `UpstreamTimeout` if it takes longer
        than the caller waits (the run continues). Raises `TooManyRequests` if too many runs wait.
        """
        flow = await self._deployed.find(request.tenant, request.flow_id)
        if flow is None or flow.component != Trigger.name:
            raise Conflict(f"flow {request.flow_id} is not enabled", field=CALL_ERROR_FIELD)
        parameters = convert_parameters(TriggerParameters, flow.parameters)
        try:
            entered = self._entry.build_output(parameters, request.inputs)
        except NodeFailed as error:
            raise InvalidInput(str(error), field=CALL_ERROR_FIELD) from error
        cause = Cause(
            kind="SERVICE",
            key=f"s-{uuid4().hex}",
            hops=request.hops,
            trace=current_trace(),
            user_id=request.user_id,
        )
        try:
            async with asyncio.timeout(request.seconds):
                run = await self._engine.run_to_end(flow, entered, cause)
        except TimeoutError as error:
            text = f"flow {flow.flow_id} takes longer than {request.seconds:g} s; it continues"
            raise UpstreamTimeout(text, field=CALL_ERROR_FIELD) from error
        if run.status == "ERROR":
            raise UpstreamFailed(f"the flow failed: {run.error}", field=CALL_ERROR_FIELD)
        return FlowOutputs(dict(run.output) if isinstance(run.output, dict) else {})


def _build_flow_input(config: TriggerInput) -> FlowInput:
    return msgspec.convert(
        {"identifier": config.identify, "name": config.name, "type": config.type}, FlowInput
    )


MAX_FLOWS_PER_ADDRESS = 20
"""Maximum flows per address."""

_decode_deployed = msgspec.json.Decoder(DeployedFlow).decode
TOKEN_PARAMETER = "token"  # noqa: S105 - the name of a field
MAX_LOGIN_FAILURES = 20
"""Consecutive failures of a client address, after which it may try once per
`LOGIN_PAUSE_SECONDS`."""
LOGIN_PAUSE_SECONDS = 1.0
MAX_CLIENT_ADDRESSES = 10_000
"""Maximum client addresses whose failures a process stores."""


class HookStore:
    """The collection `hooks`."""

    def __init__(self, database: Database) -> None:
        self._hooks = database["hooks"]

    async def find_flow_id(self, digest: bytes) -> int | None:
        """Return the id of the flow whose token has this digest."""
        document = await self._hooks.find_one({"token": digest}, {"_id": 1})
        return None if document is None else int(document["_id"])

    async def find_deployed_flow(self, digest: bytes) -> DeployedFlow | None:
        """Return the deployed flow whose token has this digest."""
        document = await self._hooks.find_one({"token": digest})
        return None if document is None else _decode_deployed(document["flow"])

    async def list_by_address(
        self, tenant: str, method: str, shapes: Sequence[str]
    ) -> list[DeployedFlow]:
        """Return flows whose address has `method` and one of `shapes`, oldest first.

        The result has at most `MAX_FLOWS_PER_ADDRESS` flows of the tenant.
        """
        query = {"tenant": tenant, "method": method, "shape": {"$in": list(shapes)}}
        cursor = self._hooks.find(query, sort=[("_id", 1)], limit=MAX_FLOWS_PER_ADDRESS)
        return [_decode_deployed(document["flow"]) async for document in cursor]

    async def has_addresses(self, tenant: str) -> bool:
        """Return whether any flow of a tenant has an address with a login."""
        query = {"tenant": tenant, "method": {"$exists": True}}
        return await self._hooks.find_one(query, {"_id": 1}) is not None

    async def count_other_flows(self, tenant: str, flow_id: int, method: str, shape: str) -> int:
        """Return the number of other flows with the same method and shape."""
        query = {"tenant": tenant, "method": method, "shape": shape, "_id": {"$ne": flow_id}}
        return await self._hooks.count_documents(query, limit=MAX_FLOWS_PER_ADDRESS)

    async def put(
        self, flow: DeployedFlow, digest: bytes, address: tuple[str, str] | None, session: Session
    ) -> None:
        """Store the hook of a flow, with method and shape of its address, if any.

        Raises `Conflict` if another flow has the token.
        """
        key = {"_id": flow.flow_id, "tenant": flow.tenant}
        fields: Document = {"token": digest, "flow": msgspec.json.encode(flow)}
        if address is not None:
            fields |= {"method": address[0], "shape": address[1]}
        text = "another flow has this token; generate a new one"
        with raise_on_duplicate(Conflict(text, field="token")):
            await self._hooks.replace_one(key, key | fields, upsert=True, session=session)

    async def remove(self, tenant: str, flow_id: int, session: Session) -> None:
        """Delete the hook of a flow."""
        await self._hooks.delete_one({"_id": flow_id, "tenant": tenant}, session=session)


class HookDeployments(DeploymentObserver):
    """Keeps hooks in step with flows."""

    def __init__(self, hooks: HookStore) -> None:
        self._hooks = hooks

    async def prepare_entry(self, flow: Flow, entry: DesignNode) -> None:
        """Raise `Conflict` if another flow has the token or too many have the address."""
        if entry.component_name != HttpIn.name:
            return
        token = (entry.data.parameters or {}).get(TOKEN_PARAMETER)
        if token and isinstance(token, str):
            owner = await self._hooks.find_flow_id(hash_token(token))
            if owner not in (None, flow.id):
                raise Conflict(
                    "another flow has this token; generate a new one", field=TOKEN_PARAMETER
                )
        if (address := _parse_method_and_shape(entry.data.parameters)) is not None:
            others = await self._hooks.count_other_flows(flow.tenant, flow.id, *address)
            if others >= MAX_FLOWS_PER_ADDRESS:
                raise Conflict(
                    f"at most {MAX_FLOWS_PER_ADDRESS} flows can have this address", field="url"
                )

    async def write_deployment(
        self, tenant: str, flow_id: int, deployed: DeployedFlow | None, session: Session
    ) -> None:
        """Store the hook of a flow that starts with `httpIn`; delete it for other flows."""
        if deployed is None or deployed.component != HttpIn.name:
            await self._hooks.remove(tenant, flow_id, session)
            return
        parameters = convert_parameters(HttpInParameters, deployed.parameters)
        kept_parameters = {
            name: value for name, value in deployed.parameters.items() if name != TOKEN_PARAMETER
        }
        without = msgspec.structs.replace(deployed, parameters=kept_parameters)
        token = parameters.token
        digest = hash_token(token) if token else secrets.token_bytes(32)  # matches no token
        await self._hooks.put(
            without, digest, _parse_method_and_shape(deployed.parameters), session
        )


class HookCaller:
    """Starts flows for HTTP requests."""

    def __init__(self, hooks: HookStore, engine: Engine) -> None:
        self._hooks = hooks
        self._engine = engine
        self._entry = HttpIn()

    async def start_by_token(self, token: str, request_input: Mapping[str, Any], hops: int) -> int:
        """Start the flow of a token and return the run id.

        Raises `NotFound`, also for the token of a disabled flow, and `TooManyRequests`.
        """
        flow = await self._hooks.find_deployed_flow(hash_token(token))
        if flow is None:
            raise NotFound("no enabled flow has this address", field=TOKEN_PARAMETER)
        return await self._start_flow(flow, dict(request_input), hops)

    async def start_by_address(
        self, tenant: str, method: str, path: str, request_input: Mapping[str, Any], hops: int
    ) -> list[int]:
        """Start the tenant's flows that match a request; return the run ids.

        Raises `MalformedRequest` without a path, or if no flow of the tenant has an address with a
        login, and `TooManyRequests`.
        """
        if not split_path(path) or not await self._hooks.has_addresses(tenant):
            raise MalformedRequest("no flow has this address", field="url")
        runs = []
        for flow in await self._hooks.list_by_address(tenant, method, list_matching_shapes(path)):
            parameters = convert_parameters(HttpInParameters, flow.parameters)
            variables = (
                parameters.parsed_address.read_variables(path) if parameters.parsed_address else {}
            )
            entered = self._entry.build_output(
                parameters, {**request_input, "pathParam": variables}
            )
            runs.append(await self._start_flow(flow, entered, hops))
        return runs

    async def _start_flow(self, flow: DeployedFlow, entered: dict[str, Any], hops: int) -> int:
        cause = Cause(kind="HTTP", key=f"h-{uuid4().hex}", hops=hops, trace=current_trace())
        run = await self._engine.record_start(FlowStart(flow, entered, cause))
        self._engine.execute(run)
        return run.id


def _parse_method_and_shape(parameters: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """Return method and shape of an entry's address; None if it has no valid address."""
    entry_parameters = convert_if_valid(HttpInParameters, parameters)
    if entry_parameters is None or entry_parameters.parsed_address is None:
        return None
    return entry_parameters.method, entry_parameters.parsed_address.shape


def hash_token(token: str) -> bytes:
    """Return the stored hash of a token, which is random and needs no salt."""
    return hashlib.sha256(token.encode()).digest()


class HttpLogins:
    """Verifies logins, and throttles guesses per replica."""

    def __init__(self, credentials: TenantCredentials) -> None:
        self._credentials = credentials
        self._failures: LruCache[str, tuple[int, float]] = LruCache(MAX_CLIENT_ADDRESSES)
        """Number of consecutive failures, and time of the latest one, by client address."""

    async def verify(
        self, access_key: str, login: tuple[str, str] | None, client_address: str
    ) -> str:
        """Return the tenant of an access key.

        `login` is the access key and the secret that the client sent, None without them.

        Raises `Unauthenticated`, and `TooManyRequests` for a client address with too many failures.
        """
        failed, last = self._failures.get(client_address) or (0, 0.0)
        if failed >= MAX_LOGIN_FAILURES and time.monotonic() < last + LOGIN_PAUSE_SECONDS:
            raise TooManyRequests("too many wrong logins", retry_after=LOGIN_PAUSE_SECONDS)
        if login is None or login[0] != access_key:
            raise Unauthenticated("send the access key and its secret as Authorization: Basic")
        tenant = await self._credentials.verify_login(CredentialsType.HTTP, *login)
        if tenant is None:
            self._failures.put(client_address, (failed + 1, time.monotonic()))
            raise Unauthenticated("the access key or its secret is wrong")
        self._failures.pop(client_address)
        return tenant
