"""Which thing a caller may see: the tenant and application filter, in one place."""

from collections.abc import Sequence
from typing import Annotated, Any

from litestar.params import PathParameter

from libs.common.errors import Forbidden, NotFound
from libs.common.identity import Kind, Principal
from libs.common.store.mongo import Database
from services.device.things.directory import Thing, ThingDirectory

MAX_ID = 2**53 - 1

DeviceId = Annotated[int, PathParameter(ge=1, le=MAX_ID, description="Id given when it was added")]


def device_not_found(device_id: int) -> NotFound:
    """404, also for devices of other applications: their ids are nobody's business."""
    return NotFound(f"there is no device {device_id}", field="deviceId", code="device_not_found")


def visible(principal: Principal, device_id: int | dict[str, Any]) -> dict[str, Any]:
    """The query for a device, or for a condition on ids, as far as `principal` may see it."""
    if principal.kind is not Kind.APPLICATION:
        raise Forbidden("this operation is for applications")
    return {
        "_id": device_id,
        "tenant": principal.tenant,
        "application.applicationId": principal.application_id,
    }


class Things:
    """Looks things up on behalf of a caller; always as they are now, on every replica."""

    def __init__(self, database: Database, directory: ThingDirectory) -> None:
        self._devices = database["devices"]
        self._directory = directory

    async def document(self, principal: Principal, device_id: int) -> dict[str, Any]:
        """The device's document, when `principal` may see it; else `NotFound`."""
        document: dict[str, Any] | None = await self._devices.find_one(
            visible(principal, device_id)
        )
        if document is None:
            raise device_not_found(device_id)
        return document

    async def of(self, principal: Principal, device_id: int) -> Thing:
        """The thing with its TSL, when `principal` may see it; else `NotFound`."""
        return await self._directory.thing(await self.document(principal, device_id))

    async def all_of(self, principal: Principal, device_ids: Sequence[int]) -> dict[int, Thing]:
        """The things of `device_ids` that `principal` may see, by id; the others are missing."""
        query = visible(principal, {"$in": list(device_ids)})
        documents = await self._devices.find(query).to_list(None)
        return {thing.id: thing for thing in await self._directory.things(documents)}

    async def granted(self, tenant: str, device_ids: Sequence[int]) -> dict[int, Thing]:
        """The things of devices of a tenant, by id; whoever asks has looked at grants."""
        query = {"_id": {"$in": list(device_ids)}, "tenant": tenant}
        documents = await self._devices.find(query).to_list(None)
        return {thing.id: thing for thing in await self._directory.things(documents)}

    async def of_device(self, principal: Principal, sn: str) -> Thing:
        """The thing that speaks for itself at `/ingest`."""
        if principal.kind is not Kind.DEVICE or principal.subject.upper() != sn.upper():
            raise Forbidden("a device speaks only for itself", field="sn")
        found = await self._directory.by_sn([sn])
        if sn not in found:
            raise NotFound(f"there is no device {sn}", field="sn", code="device_not_found")
        return found[sn]
