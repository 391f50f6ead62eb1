"""The running integrations, which announce themselves; they are listed and called.

`integrations`: `{_id, manifest (JSON), announcedAt}`; ages are computed with MongoDB's clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from pymongo import UpdateOne

from libs.common.contracts.integrations import (
    ANNOUNCEMENT_LIFETIME_SECONDS,
    Acknowledged,
    GetIntegrations,
    Integration,
    KnownIntegrations,
    Manifest,
)
from libs.common.contracts.names import (
    DescribedIntegration,
    DescribedIntegrations,
    DescribeIntegrations,
    DeviceCount,
)
from libs.common.device_client import DeviceClient
from libs.common.errors import Forbidden, InvalidInput, NotFound, Unavailable
from libs.common.http import RequestPrincipal, build_dependencies
from libs.common.http.console import Page, PageRequest, ResponseModel, get, post
from libs.common.http.guards import allow_holders
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database, StoreError
from libs.common.store.redis import RequestBatcher
from libs.common.things import AccessMod, EntityType, ValueType, integration_key, member_key
from libs.common.tsl import TslDocument, TslInvalid


class SearchIntegrations(PageRequest, kw_only=True):
    """Body of `POST /integration/search`; filters may be true, false or absent."""

    device_addable: bool | None = None
    """True for integrations that can add devices."""
    device_deletable: bool | None = None
    """True for integrations that can delete devices."""


class IntegrationResponse(ResponseModel, kw_only=True):
    """An integration in a list. The counts have two spellings, because clients use both."""

    id: str
    icon: str
    name: str
    description: str
    add_device_service_key: str | None = None
    """Key of the service entity that adds a device. Absent if the integration has none."""
    delete_device_service_key: str | None = None
    """Key of the service entity that deletes a device. Absent if the integration has none."""
    carries_frames: bool
    """Whether its devices send bytes, which the codecs of their products decode."""
    device_count: int
    """Number of devices."""
    entity_count: int
    """Number of entities of the integration and its devices."""
    device_count_camel: int = msgspec.field(name="deviceCount")
    """Same as `device_count`."""
    entity_count_camel: int = msgspec.field(name="entityCount")
    """Same as `entity_count`."""


class IntegrationEntity(ResponseModel, kw_only=True):
    """An entity of the integration itself."""

    id: str
    key: str
    """Key of the entity. It never changes."""
    name: str
    type: EntityType
    """`PROPERTY` (a value), `SERVICE` (can be called) or `EVENT` (is reported)."""
    value_attribute: dict[str, Any]
    value_type: ValueType
    access_mod: AccessMod | None = None
    parent: str | None = None
    """Key of the entity that contains this one."""
    description: str | None = None
    value: Any = None
    """The latest value."""


class IntegrationDetail(IntegrationResponse, kw_only=True):
    """An integration with its entities: parents, each followed by its children."""

    integration_entities: list[IntegrationEntity]
    """Entities of the integration itself."""


MAX_CACHED_MANIFESTS = 1000
"""Manifests that are kept in memory."""
RENEWAL_BATCH_SECONDS = 0.5
"""Seconds for which a repeated announcement waits for others, which are stored together."""


def parse_tsl(manifest: Manifest) -> TslDocument:
    """Return the manifest's TSL; raise `InvalidInput` with every fault."""
    try:
        return manifest.document()
    except TslInvalid as error:
        raise InvalidInput(f"tsl: {error}", field="tsl") from error


def _encode_manifest(manifest: Manifest) -> str:
    return msgspec.json.encode(manifest).decode()


class IntegrationStore:
    """The collection `integrations`, shared by all replicas."""

    def __init__(self, database: Database) -> None:
        self._integrations = database["integrations"]

    async def save(self, manifest: Manifest) -> None:
        """Store a manifest and the current time."""
        content = {"manifest": {"$literal": _encode_manifest(manifest)}, "announcedAt": "$$NOW"}
        await self._integrations.update_one(
            {"_id": manifest.id},
            [{"$set": content}],
            upsert=True,
        )

    async def renew_or_save(self, manifests: Sequence[Manifest]) -> list[None]:
        """Store the current time for stored manifests; save all if one is not stored."""
        renewals = [
            UpdateOne(
                {"_id": manifest.id, "manifest": _encode_manifest(manifest)},
                [{"$set": {"announcedAt": "$$NOW"}}],
            )
            for manifest in manifests
        ]
        result = await self._integrations.bulk_write(renewals, ordered=False)
        for manifest in manifests if result.matched_count < len(manifests) else ():
            await self.save(manifest)
        return [None] * len(manifests)

    async def list_all(self) -> list[Integration]:
        """Return every announced integration sorted by id, and whether it is running."""
        oldest = {"$subtract": ["$$NOW", int(ANNOUNCEMENT_LIFETIME_SECONDS * 1000)]}
        cursor = await self._integrations.aggregate(
            [{"$set": {"alive": {"$gt": ["$announcedAt", oldest]}}}, {"$sort": {"_id": 1}}]
        )
        return [
            Integration(
                manifest=msgspec.json.decode(document["manifest"], type=Manifest),
                alive=document["alive"],
            )
            async for document in cursor
        ]


class IntegrationRegistry:
    """Checks announcements, and lists integrations."""

    def __init__(self, store: IntegrationStore) -> None:
        self._store = store
        self._known: LruCache[str, Manifest] = LruCache(MAX_CACHED_MANIFESTS)
        """The last valid manifest of each integration."""
        self._renewals = RequestBatcher(store.renew_or_save, RENEWAL_BATCH_SECONDS)

    async def announce(self, integration: str, manifest: Manifest) -> Acknowledged:
        """Store the announcement of the integration `integration`, to which the login belongs.

        Raises `Forbidden` for the manifest of another integration, and `InvalidInput` for an
        invalid TSL, or if the TSL lacks the add service, the delete service or the identifier
        input.
        """
        if manifest.id != integration:
            raise Forbidden(f"{integration} cannot announce {manifest.id}", field="id")
        if self._known.get(integration) == manifest:
            await self._renewals.answer(manifest)
            return Acknowledged()
        services = {service.id: service.inputs for service in parse_tsl(manifest).services}
        for field in ("add_device_service", "delete_device_service"):
            service = getattr(manifest, field)
            if service is not None and service not in services:
                raise InvalidInput(f"the TSL has no service {service!r}", field=field)
        identifier_input = manifest.identifier_input
        inputs = services.get(manifest.add_device_service or "", [])
        if identifier_input is not None and identifier_input not in {
            entry.id.rpartition(".")[2] for entry in inputs
        }:
            raise InvalidInput(
                f"the add service has no input {identifier_input!r}", field="identifier_input"
            )
        await self._store.save(manifest)
        self._known.put(integration, manifest)
        return Acknowledged()

    async def announce_from_this_process(
        self, integration: str, manifest: Manifest
    ) -> Acknowledged:
        """Store the announcement of an integration that runs in this process.

        Raises `Unavailable` if the database does not answer, like a request on the bus.
        """
        try:
            return await self.announce(integration, manifest)
        except StoreError as error:
            raise Unavailable(f"the database does not answer: {error!s:.200}") from error

    async def list_all(self, _: GetIntegrations) -> KnownIntegrations:
        """Return every integration, including hidden and stopped ones."""
        return KnownIntegrations(await self._store.list_all())

    async def list_visible(self) -> list[Manifest]:
        """Return the integrations that users may see: running, and not hidden."""
        integrations = await self._store.list_all()
        return [
            integration.manifest
            for integration in integrations
            if integration.alive and not integration.manifest.hidden
        ]


SORT_FIELD_BY_COLUMN = {name: name for name in ("id", "name", "device_count", "entity_count")}
"""Properties by which a search can be sorted."""
_ZERO_COUNTS = DeviceCount(devices=0, entities=0)


class IntegrationService:
    """The operations on integrations."""

    def __init__(
        self, registry: IntegrationRegistry, devices: DeviceClient, grants: GrantReader
    ) -> None:
        self._registry = registry
        self._devices = devices
        self._grants = grants

    async def search(
        self, user: Principal, request: SearchIntegrations
    ) -> list[IntegrationResponse] | Page[IntegrationResponse]:
        """Return the running integrations that the user sees, or the requested page."""
        order = request.order(SORT_FIELD_BY_COLUMN, [("id", 1)])
        grants = await self._grants.read(user)
        integrations = [
            manifest
            for manifest in await self._registry.list_visible()
            if grants.allows_integration(manifest.id) and _matches_filters(manifest, request)
        ]
        counts = await self._devices.count_devices(user.tenant) if integrations else {}
        responses = [
            IntegrationResponse.from_fields(
                entry, **_derived_fields(entry, counts.get(entry.id, _ZERO_COUNTS))
            )
            for entry in integrations
        ]
        for column, direction in reversed(order):
            if column in SORT_FIELD_BY_COLUMN:
                responses.sort(key=attrgetter(column), reverse=direction < 0)
        return request.select_page(responses)

    async def get(self, user: Principal, integration: str) -> IntegrationDetail:
        """Return an integration with its entities; raise `NotFound` or `Forbidden`."""
        if not (await self._grants.read(user)).allows_integration(integration):
            raise Forbidden("the user does not have data permission", field="integration_id")
        visible = await self._registry.list_visible()
        manifest = next((manifest for manifest in visible if manifest.id == integration), None)
        if manifest is None:
            raise NotFound(f"the integration {integration} does not exist", field="integration_id")
        counts = await self._devices.count_devices(user.tenant)
        entities = await self._devices.describe_integration(user.tenant, integration)
        return IntegrationDetail.from_fields(
            manifest,
            **_derived_fields(manifest, counts.get(integration, _ZERO_COUNTS)),
            integration_entities=[IntegrationEntity.from_fields(entity) for entity in entities],
        )

    async def describe(self, request: DescribeIntegrations) -> DescribedIntegrations:
        """Return the integrations that match `ids` and `keyword`, sorted by name.

        `auth` shows them as resources that a role can be granted.
        """
        keyword = request.keyword.casefold()
        ids = None if request.ids is None else frozenset(request.ids)
        integrations = [
            manifest
            for manifest in await self._registry.list_visible()
            if (ids is None or manifest.id in ids) and keyword in manifest.name.casefold()
        ]
        counts = await self._devices.count_devices(request.tenant) if integrations else {}
        return DescribedIntegrations(
            [
                DescribedIntegration(
                    id=manifest.id,
                    name=manifest.name,
                    devices=counts.get(manifest.id, _ZERO_COUNTS).devices,
                    entities=_count_entities(manifest, counts.get(manifest.id, _ZERO_COUNTS)),
                )
                for manifest in sorted(
                    integrations, key=lambda manifest: (manifest.name.casefold(), manifest.id)
                )
            ]
        )


def _matches_filters(manifest: Manifest, request: SearchIntegrations) -> bool:
    addable = manifest.add_device_service is not None
    deletable = manifest.delete_device_service is not None
    return request.device_addable in {None, addable} and request.device_deletable in {
        None,
        deletable,
    }


def _derived_fields(manifest: Manifest, counts: DeviceCount) -> dict[str, Any]:
    """Return the fields of `IntegrationResponse` that the manifest lacks."""
    devices, entities = counts.devices, _count_entities(manifest, counts)
    return {
        "add_device_service_key": _service_entity_key(manifest, manifest.add_device_service),
        "delete_device_service_key": _service_entity_key(manifest, manifest.delete_device_service),
        "device_count": devices,
        "entity_count": entities,
        "device_count_camel": devices,
        "entity_count_camel": entities,
    }


def _count_entities(manifest: Manifest, counts: DeviceCount) -> int:
    """Return the number of entities of the devices and of the integration itself."""
    tsl = parse_tsl(manifest)
    own_entities = len(tsl.properties)
    own_entities += sum(1 + len(event.outputs) for event in tsl.events)
    own_entities += sum(1 + len(service.inputs) for service in tsl.services)
    return counts.entities + own_entities


def _service_entity_key(manifest: Manifest, service: str | None) -> str | None:
    return None if service is None else member_key(integration_key(manifest.id), service)


IntegrationServiceDependency = NamedDependency[IntegrationService]
_ALLOW_INTEGRATION_READERS = allow_holders(Function.DEVICE_ADD, Function.INTEGRATION_VIEW)


@post("/search", guards=[_ALLOW_INTEGRATION_READERS])
async def search_integrations(
    principal: RequestPrincipal,
    integrations: IntegrationServiceDependency,
    data: JSONBody[SearchIntegrations | None] = None,
) -> list[IntegrationResponse] | Page[IntegrationResponse]:
    """List the running integrations that the caller sees, sorted by id by default."""
    search = data or SearchIntegrations()
    return await integrations.search(principal, search)


@get("/{integration_id:str}", guards=[_ALLOW_INTEGRATION_READERS])
async def get_integration(
    principal: RequestPrincipal,
    integrations: IntegrationServiceDependency,
    integration_id: FromPath[str],
) -> IntegrationDetail:
    """Return an integration with its entities and their values."""
    return await integrations.get(principal, integration_id)


@dataclass(frozen=True)
class IntegrationHandlerDependencies:
    """Dependencies of the handlers."""

    integrations: IntegrationService


def create_router(integrations: IntegrationService) -> Router:
    """Return the router of the operations, with their dependencies."""
    return route_operations(
        globals(),
        "/integration",
        dependencies=build_dependencies(IntegrationHandlerDependencies(integrations)),
        tags=["Integrations"],
    )
