"""Operations on devices for other services and for integrations, on the bus.

The subject `rpc.device.{operation}.{integration}` identifies the calling integration.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from libs.common.bus import RpcServer
from libs.common.clock import now_ms, to_ms
from libs.common.contracts.entities import DescribeIntegrationEntities, ThingEntities, ThingEntity
from libs.common.contracts.integrations import (
    BUILT_IN_IDS,
    Acknowledged,
    DeviceRef,
    DeviceTsl,
    GetOwnValues,
    GetTsl,
    ListDevices,
    ListedDevices,
    Manifest,
    OwnValues,
    PutDevice,
    SendEvent,
    SendOwnReport,
    SendReply,
    SendReport,
)
from libs.common.contracts.names import (
    MAX_DESCRIBED_DEVICES,
    CountDevices,
    DescribedDevice,
    DescribedDevices,
    DescribeDevices,
    DeviceCount,
    DeviceCounts,
)
from libs.common.decoding import copy_fields
from libs.common.errors import InvalidInput, NotFound, TooLarge
from libs.common.integrations.client import Integrations
from libs.common.store.mongo import Document, build_text_condition
from libs.common.things import DIRECT_INTEGRATION, internal_sn
from libs.common.tsl import to_wire
from services.device.members.directory import MemberSetDirectory
from services.device.members.entity import Entity, thing_from_document
from services.device.members.integration_things import IntegrationThings
from services.device.registry.devices.integration_devices import (
    DeviceDraft,
    IntegrationDeviceWriter,
    to_integration_ref,
)
from services.device.registry.products.service import ProductService
from services.device.registry.products.templates import TemplateService
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.presence_store import HttpPresence
from services.device.telemetry.reporter import Reporter
from services.device.telemetry.uplink import MAX_PAYLOAD_BYTES, check_message
from services.device.things.device_queries import DeviceQueries
from services.device.things.device_search import INTEGRATION_NAME_FIELD, PageQuery
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.model import Device, Thing
from services.device.things.visibility import Condition

SORT_FIELD_BY_COLUMN = {
    "id": "_id",
    "name": "name",
    "createdAt": "createdAt",
    INTEGRATION_NAME_FIELD: INTEGRATION_NAME_FIELD,
}
"""The fields by which devices can be sorted, and their stored fields."""
_DESCRIBED_FIELDS = {"name": 1, "integration": 1, "createdAt": 1, "userId": 1, "group": 1}


class DeviceSummaryRpc:
    """Answers `describe_devices` and `count_devices`."""

    def __init__(
        self, lists: DeviceQueries, member_sets: MemberSetDirectory, integrations: Integrations
    ) -> None:
        self._integrations = integrations
        self._lists = lists
        self._member_sets = member_sets

    def offer(self, rpc: RpcServer) -> None:
        """Register the handlers of both operations."""
        rpc.offer("describe_devices", DescribeDevices, self.describe)
        rpc.offer("count_devices", CountDevices, self.count)

    async def describe(self, request: DescribeDevices) -> DescribedDevices:
        """Return a page of devices; raise `InvalidInput` for an invalid request."""
        if not 1 <= request.limit <= MAX_DESCRIBED_DEVICES:
            raise InvalidInput(f"must be from 1 to {MAX_DESCRIBED_DEVICES}", field="limit")
        if request.skip < 0:
            raise InvalidInput("must not be negative", field="skip")
        order: dict[str, int] = {}
        for name, way in request.order:
            if name not in SORT_FIELD_BY_COLUMN or way not in (1, -1):
                raise InvalidInput(
                    f"must be {', '.join(SORT_FIELD_BY_COLUMN)} with 1 or -1", field="order"
                )
            order.setdefault(SORT_FIELD_BY_COLUMN[name], way)
        order.setdefault("_id", -1)
        query = PageQuery(
            _build_condition(request), list(order.items()), request.skip, request.limit
        )
        if query.sorts_by_integration:
            query = replace(query, integrations=await self._integrations.list_by_name())
        rows, total = await self._lists.find_documents(
            query, _DESCRIBED_FIELDS, counted=request.counted
        )
        return DescribedDevices(list(map(_describe_device, rows)), total)

    async def count(self, request: CountDevices) -> DeviceCounts:
        """Return the numbers of devices and their entities by integration.

        Entities are counted by product: the number of members of the TSL times the number of
        devices.
        """
        groups = await self._lists.count_member_sets_by_integration(request.tenant)
        members = await self._member_sets.find(
            request.tenant, {group.member_set for group in groups}
        )
        counts: dict[str, DeviceCount] = defaultdict(lambda: DeviceCount(0, 0))
        for group in groups:
            count = counts[group.integration]
            count.devices += group.devices
            count.entities += group.devices * len(members[group.member_set].members)
        return DeviceCounts(dict(counts))


def _build_condition(request: DescribeDevices) -> Condition:
    conditions: list[Condition] = [{"tenant": request.tenant}]
    either: list[Condition] = []
    if request.ids is not None:
        either.append({"_id": {"$in": request.ids}})
    if request.integrations is not None:
        either.append({"integration": {"$in": request.integrations}})
    if request.groups is not None:
        either.append({"group": {"$in": request.groups}})
    if either:
        conditions.append({"$or": either})
    if request.exclude_ids:
        conditions.append({"_id": {"$nin": request.exclude_ids}})
    if request.exclude_integrations:
        conditions.append({"integration": {"$nin": request.exclude_integrations}})
    if request.exclude_groups:
        conditions.append({"group": {"$nin": request.exclude_groups}})
    if request.keyword:
        keyword_conditions: list[Condition] = [{"name": build_text_condition(request.keyword)}]
        keyword_conditions.append({"integration": {"$in": request.keyword_integrations}})
        conditions.append({"$or": keyword_conditions})
    return {"$and": conditions}


def _describe_device(document: Document) -> DescribedDevice:
    user = document.get("userId")
    return DescribedDevice(
        id=int(document["_id"]),
        name=document["name"],
        integration=document.get("integration", DIRECT_INTEGRATION),
        created_at=to_ms(document["createdAt"]),
        user_id=None if user is None else int(user),
        group=document.get("group"),
    )


MODEL_INPUT = "model"
"""The input of built-in integrations that names the product of a new device."""
MAX_OFFERED_MODELS = 1000
"""Maximum products that a form offers."""


@dataclass(frozen=True, kw_only=True)
class IntegrationRpc:
    """The operations that `device` offers to integrations."""

    devices: DeviceStore
    integrations: Integrations
    integration_things: IntegrationThings
    directory: ThingDirectory
    reporter: Reporter
    presence: HttpPresence
    products: ProductService
    templates: TemplateService
    latest: LatestValues
    integration_device_writer: IntegrationDeviceWriter
    retention_ms: int

    def offer(self, rpc: RpcServer) -> None:
        """Register the handlers of `rpc.device.{operation}.{integration}` and of entities."""
        rpc.offer_each("report", SendReport, self.accept_report)
        rpc.offer_each("event", SendEvent, self.accept_event)
        rpc.offer_each("reply", SendReply, self.accept_reply)
        rpc.offer_each("own_report", SendOwnReport, self.store_own_report)
        rpc.offer_each("list_devices", ListDevices, self.list_devices)
        rpc.offer_each("get_tsl", GetTsl, self.get_tsl)
        rpc.offer_each("own_values", GetOwnValues, self.get_own_values)
        rpc.offer_each("put_device", PutDevice, self.put_device)
        rpc.offer("integration_entities", DescribeIntegrationEntities, self.describe_entities)

    async def accept_report(self, integration: str, request: SendReport) -> Acknowledged:
        """Validate and publish a report of a device; raise `NotFound` for an unknown device."""
        body: dict[str, Any] = {"properties": request.properties}
        device = await self._find_device(integration, request.tenant, request.identifier)
        return await self._publish(device, "report", body, request.ts, request.report_id)

    async def accept_event(self, integration: str, request: SendEvent) -> Acknowledged:
        """Validate and publish an event of a device; raise `NotFound` for an unknown device."""
        body = {"eventId": request.event_id, "outputs": request.outputs}
        device = await self._find_device(integration, request.tenant, request.identifier)
        return await self._publish(device, "event", body, request.ts)

    async def accept_reply(self, integration: str, request: SendReply) -> Acknowledged:
        """Validate and publish a reply to a command; raise `NotFound` for an unknown device."""
        body: dict[str, Any] = {"commandId": request.command_id, "status": request.status}
        body |= {} if request.outputs is None else {"outputs": request.outputs}
        body |= {} if request.error is None else {"error": request.error}
        device = await self._find_device(integration, request.tenant, request.identifier)
        return await self._publish(device, "reply", body, None)

    async def store_own_report(self, integration: str, request: SendOwnReport) -> Acknowledged:
        """Store properties of the integration itself before answering."""
        thing = await self._find_own_thing(integration, request.tenant)
        raw = msgspec.json.encode({"properties": request.properties})
        check_message("report", thing, raw, now_ms(), self.retention_ms)
        await self.reporter.report(thing, request.properties)
        return Acknowledged()

    async def list_devices(self, integration: str, request: ListDevices) -> ListedDevices:
        """Return a page of the integration's devices of all tenants, in the order of their ids."""
        queries = self.devices.queries
        devices = await queries.list_by_integration(integration, request.after, request.limit)
        return ListedDevices(list(map(to_integration_ref, devices)))

    async def put_device(self, integration: str, request: PutDevice) -> DeviceRef:
        """Add or update a device at the request of its integration."""
        draft = DeviceDraft(
            tenant=request.tenant,
            integration=integration,
            name=request.name,
            user_id=None,
            new=request.device,
        )
        return to_integration_ref(await self.integration_device_writer.add_or_update(draft))

    async def get_tsl(self, integration: str, request: GetTsl) -> DeviceTsl:
        """Return the TSL of a device, or the open TSL if its version does not exist."""
        device = await self._find_device(integration, request.tenant, request.identifier)
        tsl = await self.products.find_tsl_or_open_tsl(
            device.tenant, device.model, device.tsl_version
        )
        return DeviceTsl(to_wire(tsl))

    async def get_own_values(self, integration: str, request: GetOwnValues) -> OwnValues:
        """Return latest values of the integration itself."""
        thing = await self._find_own_thing(integration, request.tenant)
        values = await self.latest.find_values([thing.id])
        return OwnValues(thing.id, dict(thing.tsl.readable(values.get(thing.id, {}))))

    async def describe_entities(self, request: DescribeIntegrationEntities) -> ThingEntities:
        """Return the entities of an integration, each parent followed by its children."""
        known_integration = await self.integrations.find(request.integration)
        if known_integration is None:
            return ThingEntities([])
        thing = thing_from_document(
            await self.integration_things.ensure(request.tenant, known_integration.manifest)
        )
        values = (await self.latest.find_values([thing.id])).get(thing.id, {})
        models = await self._model_labels_by_path(request.tenant, known_integration.manifest)
        return ThingEntities(
            [
                _describe_entity(Entity(thing, member), values, models.get(member.path))
                for member in thing.members.list_in_tree_order()
            ]
        )

    async def _model_labels_by_path(
        self, tenant: str, manifest: Manifest
    ) -> dict[str, dict[str, str]]:
        """Return the models that the form for a new device offers, by input path."""
        service = manifest.add_device_service
        if manifest.id not in BUILT_IN_IDS or service is None:
            return {}
        return {
            f"{service}.{MODEL_INPUT}": await self.templates.list_labels(tenant, MAX_OFFERED_MODELS)
        }

    async def _publish(
        self,
        device: Device,
        channel: str,
        body: dict[str, Any],
        ts: int | None,
        report_id: str | None = None,
    ) -> Acknowledged:
        """Validate a message of a device and publish it on behalf of the device."""
        thing = await self.directory.build_thing(device)
        raw = msgspec.json.encode(body if ts is None else {"ts": ts, **body})
        if len(raw) > MAX_PAYLOAD_BYTES:
            raise TooLarge(f"a message may have at most {MAX_PAYLOAD_BYTES} bytes")
        check_message(channel, thing, raw, now_ms(), self.retention_ms)
        await self.reporter.send(thing, channel, raw, report_id)
        await self.presence.record_contact(thing)
        return Acknowledged()

    async def _find_device(self, integration: str, tenant: str, identifier: str) -> Device:
        device = await self.devices.find_by_identifier(tenant, integration, identifier)
        if device is None:
            raise NotFound(f"{integration} has no device {identifier[:64]}", field="identifier")
        return device

    async def _find_own_thing(self, integration: str, tenant: str) -> Thing:
        known_integration = await self.integrations.find(integration)
        if known_integration is None:
            raise NotFound(f"integration {integration} is not known", field="integration")
        document = await self.integration_things.ensure(tenant, known_integration.manifest)
        sn = internal_sn(document["_id"])
        return (await self.directory.find_by_sn([sn]))[sn]


def _describe_entity(
    entity: Entity, values: Mapping[str, Any], choices: dict[str, str] | None
) -> ThingEntity:
    """Return an entity for a form; `choices` are the options of its field."""
    member = entity.member
    attribute = member.attribute if choices is None else member.attribute | {"enum": choices}
    value = entity.value_in(values) if member.type == "PROPERTY" else None
    if value is not None and "enum" in member.attribute:
        value = str(value)  # consoles look it up among the keys of the enumeration
    return copy_fields(
        ThingEntity,
        member,
        id=entity.id,
        key=entity.key,
        parent=entity.parent_key,
        value_attribute=attribute,
        value=value,
    )
