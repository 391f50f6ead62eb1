"""Operations of users on all devices of their tenant that they may see."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from libs.common.bus import RpcClient
from libs.common.clock import to_ms
from libs.common.contracts.auth import DeviceCredentials, LastRefusedLogin
from libs.common.contracts.names import GET_DEVICE_CANVAS, DeviceCanvas, GetDeviceCanvas
from libs.common.decoding import copy_fields
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.http.console import Page, distinct_ids
from libs.common.http.streaming import StreamedAnswer, iterate_rows, map_batches
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, GrantsClient
from libs.common.identity.users import UserNames
from libs.common.integrations.client import IntegrationClient, Integrations, IntegrationSummary
from libs.common.things import entity_id
from services.device.commands.model import DEVICE_DELETED
from services.device.members.device_keys import (
    FIRST_KEY_DESCRIPTION,
    FIRST_KEY_NAME,
    DeviceCredentialsClient,
    FirstKeyReader,
)
from services.device.members.directory import EntityDirectory
from services.device.members.entity import (
    COMMON_MEMBERS,
    Entity,
    EntityThing,
    select_important_members,
)
from services.device.members.members import Member
from services.device.registry.devices.integration_devices import to_integration_ref
from services.device.registry.devices.ownership import DeviceRemover
from services.device.registry.devices.schemas import (
    DeviceDetail,
    DeviceEntity,
    DeviceListEntity,
    DeviceResponse,
    FindDevices,
    MoveDevices,
    RenameDevice,
    TagDevices,
)
from services.device.registry.devices.search import build_granted_query
from services.device.things.device_search import DeviceStream
from services.device.things.device_store import DeviceStore
from services.device.things.directory import GrantedDevices, device_not_visible
from services.device.things.groups import GroupStore
from services.device.things.model import Device, DeviceChanges, Location
from services.device.things.schemas import MAX_TAGS, DeleteDevices
from services.device.things.visibility import granted_condition

MAX_DEVICES_WITH_ENTITIES = 100
"""Maximum devices of a page that includes their entities."""

ErrorByDevice = dict[int, ThingwayError | None]
"""The error of each device by id; None on success."""


@dataclass(frozen=True, kw_only=True)
class UserDevices:
    """Operations on devices on behalf of users."""

    store: DeviceStore
    groups: GroupStore
    grants: GrantReader
    granted: GrantedDevices
    entities: EntityDirectory
    integrations: Integrations
    client: IntegrationClient
    credentials: DeviceCredentialsClient
    first_keys: FirstKeyReader
    remover: DeviceRemover
    grants_rpc: GrantsClient
    rpc: RpcClient
    user_names: UserNames

    async def search(
        self, principal: Principal, search: FindDevices
    ) -> StreamedAnswer[Page[DeviceResponse]]:
        """Stream a page of the devices that a user may see."""
        integrations = await self.integrations.list_summaries()
        found, total = await self.find(principal, search)
        with_entities = min(search.size, total - search.skip) <= MAX_DEVICES_WITH_ENTITIES

        async def to_responses(devices: Sequence[Device]) -> list[DeviceResponse]:
            groups = await self.find_group_names(principal, devices)
            rows = [
                DeviceResponse(**_response_fields(device, integrations, groups))
                for device in devices
            ]
            if with_entities:
                things = await self.entities.build_things(principal.tenant, devices)
                for row, thing in zip(rows, things, strict=True):
                    _set_widget_entities(row, thing)
            return rows

        return search.streamed_page(map_batches(found, to_responses), total)

    async def find(self, principal: Principal, search: FindDevices) -> tuple[DeviceStream, int]:
        """Return the devices of a page, and the total."""
        grants = await self.grants.read(principal)
        query, counted = build_granted_query(principal.tenant, grants, search)
        if query.sorts_by_integration:
            query = replace(query, integrations=await self.integrations.list_by_name())
        return (iterate_rows([]), 0) if grants.is_empty else await self.store.search(query, counted)

    async def get(self, principal: Principal, device_id: int, *, may_see_key: bool) -> DeviceDetail:
        """Return a device with its entities, and its first key if the user may see it."""
        device = await self.granted.find(principal, device_id)
        (thing,) = await self.entities.build_things(device.tenant, [device])
        entities = [
            _entity_response(Entity(thing, member)) for member in thing.members.list_in_tree_order()
        ]
        if (
            may_see_key
            and (key := await self.first_keys.get_or_issue_key(principal, device)) is not None
        ):
            entities = [_device_key_entity(device, key), *entities]
        groups = await self.find_group_names(principal, [device])
        fields = _response_fields(device, await self.integrations.list_summaries(), groups)
        detail = DeviceDetail(
            **fields,
            joined=device.joined,
            link=device.link,
            entities=entities,
            user_nickname=await self._find_user_nickname(device),
        )
        _set_widget_entities(detail, thing)
        return detail

    async def rename(self, principal: Principal, device_id: int, body: RenameDevice) -> None:
        """Rename a device and publish the event; the same name changes nothing."""
        device = await self.granted.find(principal, device_id)
        if device.name == body.name:
            return
        changes = DeviceChanges(name=body.name)
        if await self.store.update(principal.tenant, device_id, changes) is None:
            raise device_not_visible(device_id)

    async def set_location(
        self, principal: Principal, device_id: int, location: Location | None
    ) -> None:
        """Set or remove the location of a device, and publish the event."""
        await self.granted.find(principal, device_id)
        changes = DeviceChanges(location=location)
        if await self.store.update(principal.tenant, device_id, changes) is None:
            raise device_not_visible(device_id)

    async def get_location(self, principal: Principal, device_id: int) -> Location | None:
        """Return the location of a device, if known."""
        return (await self.granted.find(principal, device_id)).location

    async def get_canvas(self, principal: Principal, device_id: int) -> DeviceCanvas:
        """Return the canvas of a device, which `management` stores."""
        device = await self.granted.find(principal, device_id)
        request = GetDeviceCanvas(device.tenant, device.id)
        return await self.rpc.call(GET_DEVICE_CANVAS, request, DeviceCanvas)

    async def move(self, principal: Principal, body: MoveDevices) -> list[int]:
        """Move devices to a group, or out of their group; return the ids of the visible devices.

        Other ids are ignored. Raises `NotFound` when the group does not exist; then no device
        moves.
        """
        tenant, group = principal.tenant, body.group_id or None

        def change_group(device: Device) -> DeviceChanges | None:
            return None if device.group == group else DeviceChanges(group=group)

        return await self.store.change_each(
            tenant,
            distinct_ids(body.device_id_list),
            granted_condition(await self.grants.read(principal)),
            change_group,
            None if group is None else partial(self.groups.record_join, tenant, group),
        )

    async def issue_credentials(self, principal: Principal, device_id: int) -> DeviceCredentials:
        """Issue a new key for a device; the previous one stops working."""
        device = await self.granted.find(principal, device_id)
        check_exists = partial(self.granted.find, principal, device_id)
        return await self.credentials.issue(device, check_exists)

    async def find_last_rejected_login(
        self, principal: Principal, device_id: int
    ) -> LastRefusedLogin:
        """Return the last rejected login of a device; empty if there was none in 7 days."""
        device = await self.granted.find(principal, device_id)
        return await self.credentials.find_last_rejected_login(device)

    async def delete(self, principal: Principal, body: DeleteDevices) -> None:
        """Delete the devices that the user may see; ignore unknown ids.

        No device is deleted if the running integration of any of them cannot delete devices. If an
        integration fails later, the error names the device; devices with lower ids are deleted.
        """
        grants = await self.grants.read(principal)
        ids = sorted(distinct_ids(body.device_id_list))
        visible = [
            device
            for device in await self.store.find_all(principal.tenant, ids)
            if grants.allows_device(device.id, device.integration, device.group)
        ]
        integrations = {device.integration for device in visible}
        calls = {name: await self._must_call_integration_to_delete(name) for name in integrations}
        deleted: list[int] = []
        try:
            for device in visible:
                await self._delete_device(device, calls_integration=calls[device.integration])
                deleted.append(device.id)
        finally:
            await self.grants_rpc.forget_devices(principal.tenant, deleted)

    async def delete_each(self, principal: Principal, ids: Sequence[int]) -> ErrorByDevice:
        """Delete each device that the user may see; return the outcome of each."""
        grants = await self.grants.read(principal)
        outcomes: ErrorByDevice = {device_id: device_not_visible(device_id) for device_id in ids}
        deleted: list[int] = []
        try:
            for device in await self.store.find_all(principal.tenant, ids):
                if not grants.allows_device(device.id, device.integration, device.group):
                    continue
                try:
                    calls = await self._must_call_integration_to_delete(device.integration)
                    await self._delete_device(device, calls_integration=calls)
                except ThingwayError as error:
                    outcomes[device.id] = error
                else:
                    outcomes[device.id] = None
                    deleted.append(device.id)
        finally:
            await self.grants_rpc.forget_devices(principal.tenant, deleted)
        return outcomes

    async def move_each(self, principal: Principal, body: MoveDevices) -> ErrorByDevice:
        """Move devices like `move`; return the outcome of each."""
        moved = set(await self.move(principal, body))
        ids = distinct_ids(body.device_id_list)
        return {
            device_id: None if device_id in moved else device_not_visible(device_id)
            for device_id in ids
        }

    async def tag_each(self, principal: Principal, body: TagDevices) -> ErrorByDevice:
        """Change the tags of the devices that the user may see; return each outcome."""
        too_many: dict[int, ThingwayError] = {}

        def change(device: Device) -> DeviceChanges | None:
            tags = _change_tags(body, device.tag)
            if len(tags) > max(MAX_TAGS, len(device.tag)):
                text = f"a device has at most {MAX_TAGS} tags"
                too_many[device.id] = InvalidInput(text, field="tags")
                return None
            return None if tags == device.tag else DeviceChanges(tag=tags)

        ids = distinct_ids(body.device_id_list)
        condition = granted_condition(await self.grants.read(principal))
        changed = set(await self.store.change_each(principal.tenant, ids, condition, change))
        return {
            device_id: too_many.get(device_id)
            if device_id in changed
            else device_not_visible(device_id)
            for device_id in ids
        }

    async def _must_call_integration_to_delete(self, integration: str) -> bool:
        """Return whether the integration runs, so that it must delete its devices.

        Raises `InvalidInput` if it runs but cannot delete devices.
        """
        manifest = await self.integrations.find(integration)
        if manifest is None or not manifest.alive:
            return False
        if manifest.manifest.delete_device_service is None:
            raise InvalidInput(
                f"integration {integration} cannot delete device!",
                field="device_id_list",
                code="method_not_allowed",
            )
        return True

    async def _delete_device(self, device: Device, *, calls_integration: bool) -> None:
        if calls_integration:
            try:
                await self.client.delete_device(device.integration, to_integration_ref(device))
            except ThingwayError as error:
                error.field = error.field or f"device_id_list.{device.id}"
                raise
        delete = partial(self.store.delete, device.tenant, device.id)
        await self.remover.remove(device, delete, DEVICE_DELETED)

    async def _find_user_nickname(self, device: Device) -> str | None:
        """Return the nickname of the user who added the device, if any."""
        if device.user_id is None:
            return None
        names = await self.user_names.nicknames(device.tenant, [device.user_id])
        return names.get(device.user_id)

    async def find_group_names(
        self, principal: Principal, devices: Iterable[Device]
    ) -> Mapping[int, str]:
        """Return the names of the groups that devices are in, by id."""
        ids = {device.group for device in devices if device.group is not None}
        return await self.groups.find_names(principal.tenant, ids) if ids else {}


def _change_tags(body: TagDevices, tags: Sequence[str]) -> list[str]:
    """Return the new tags of a device."""
    if body.operation == "REMOVE":
        return [tag for tag in tags if tag not in body.tags]
    return list(dict.fromkeys([*(tags if body.operation == "ADD" else ()), *body.tags]))


def _entity_response(entity: Entity) -> DeviceEntity:
    member = entity.member
    return copy_fields(
        DeviceEntity,
        member,
        id=str(entity.id),
        key=entity.key,
        value_attribute=member.attribute,
    )


def _set_widget_entities(device: DeviceResponse, thing: EntityThing) -> None:
    """Set the entities of a device that widgets of consoles show."""
    device.important_entities = _to_list_entities(thing, select_important_members(thing.members))
    device.common_entities = _to_list_entities(thing, COMMON_MEMBERS.list_in_tree_order())


def _to_list_entities(thing: EntityThing, members: Iterable[Member]) -> list[DeviceListEntity]:
    return [
        DeviceListEntity(
            id=str(entity.id),
            key=entity.key,
            name=member.name,
            type=member.type,
            value_type=member.value_type,
            value_attribute=member.attribute,
            access_mod=member.access_mod,
            description=member.description,
            parent=entity.parent_key,
        )
        for member in members
        for entity in (Entity(thing, member),)
    ]


def _device_key_entity(device: Device, key: str) -> DeviceEntity:
    """Return the additional entity with the first key, which other vendors' consoles show.

    Its id contains the member number 0, which no member has.
    """
    return DeviceEntity(
        id=str(entity_id(device.id, 0)),
        key=key,
        name=FIRST_KEY_NAME,
        type="PROPERTY",
        value_attribute={},
        value_type="STRING",
        description=FIRST_KEY_DESCRIPTION,
    )


def _response_fields(
    device: Device, integrations: Mapping[str, IntegrationSummary], groups: Mapping[int, str]
) -> dict[str, Any]:
    """Return the fields of `DeviceResponse`."""
    integration = integrations.get(device.integration)
    group = None if device.group is None else groups.get(device.group)
    status, since = device.connect_status, device.connect_changed
    return {
        "id": str(device.id),
        "key": device.thing_key,
        "name": device.name,
        "integration": device.integration,
        "integration_name": integration.name if integration else None,
        "identifier": device.identifier,
        "additional_data": device.additional or {},
        "model": device.model,
        "tags": device.tag,
        "status": None if status == "DISCONNECT" else status,
        "status_updated_at": None if since is None else to_ms(since),
        "last_reported_at": device.last_update_time,
        "location": device.location,
        "group_id": None if group is None else str(device.group),
        "group_name": group,
        "application_id": str(device.application_id) if device.application else None,
        "application_name": device.application.application_name if device.application else None,
        "created_at": to_ms(device.created_at),
        "updated_at": to_ms(device.updated_at),
        "deletable": integration is None or integration.deletable,
        "sends_frames": integration is not None and integration.carries_frames,
    }
