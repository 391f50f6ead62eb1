"""The directory of things by id and SN, and of the devices that a user may see.

Lookups by id read the current record. Lookups by SN use a cache: a thing stays in it for
`CACHE_SECONDS`, or until an event reports a change. Unknown SNs are not cached, so that a new
device is known at its first report.
"""

import time
from collections.abc import Iterable, Sequence

from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.contracts.events import DeviceProfile
from libs.common.errors import Forbidden, NotFound
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.grants import GrantReader
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database, Document
from libs.common.things import integration_key, internal_sn, parse_internal_sn
from libs.common.tsl import Tsl
from services.device.things.device_store import DeviceStore
from services.device.things.errors import device_not_found
from services.device.things.model import Device, Thing, event_profile, reported_fields
from services.device.things.schemas import require_application
from services.device.things.specifications import TslStore
from services.device.things.thing_store import StoredThing, ThingStore

CACHE_SECONDS = 60.0
CACHE_SIZE = 50_000
"""Maximum cached things; each takes about 1.5 KB."""


class ThingDirectory:
    """Finds things by id and SN; one per process."""

    def __init__(self, database: Database, devices: DeviceStore, tsls: TslStore) -> None:
        self._devices = devices
        self._tsls = tsls
        self._by_sn: LruCache[str, Thing] = LruCache(CACHE_SIZE)
        self._sn_keys: dict[int, str] = {}
        self.store = ThingStore(database, tsls)

    async def watch(self, bus: Bus) -> None:
        """Subscribe to events of changed devices, and remove these from the cache."""

        async def drop(message: Msg) -> None:
            self.remove_from_cache(int(message.subject.split(".")[3]))

        for change in ("added", "updated", "deleted"):
            await bus.client.subscribe(f"event.*.device.*.{change}", cb=drop)

    def remove_from_cache(self, device_id: int) -> None:
        """Remove a thing from the cache."""
        key = self._sn_keys.pop(device_id, None)
        if key is not None:
            self._by_sn.pop(key)

    async def find_by_sn(
        self, sns: Iterable[str], max_age: float = CACHE_SECONDS
    ) -> dict[str, Thing]:
        """Return the things with these SNs, by SN as given; unknown SNs are missing.

        Cached things are at most `max_age` seconds old.
        """
        oldest = time.monotonic() - max_age
        found: dict[str, Thing] = {}
        missing: dict[str, str] = {}
        stored: dict[str, int] = {}
        for sn in sns:
            thing_id = parse_internal_sn(sn)
            if thing_id is not None:
                stored[sn] = thing_id
                continue
            key = sn.upper()
            thing = self._by_sn.get(key)
            if thing is not None and thing.loaded_at > oldest:
                found[sn] = thing
            else:
                missing[sn] = key
        if missing:
            loaded = await self._load(set(missing.values()))
            found.update({sn: loaded[key] for sn, key in missing.items() if key in loaded})
        if stored:
            things = await self.store.find_things(stored.values())
            found.update(
                {
                    sn: _build_stored_thing(things[thing_id])
                    for sn, thing_id in stored.items()
                    if thing_id in things
                }
            )
        return found

    async def _load(self, keys: set[str]) -> dict[str, Thing]:
        loaded: dict[str, Thing] = {}
        devices = await self._devices.find_by_serials(keys)
        for device, thing in zip(devices, await self.build_things(devices), strict=True):
            loaded[device.sn_key] = thing
            self._sn_keys[thing.id] = device.sn_key
            dropped = self._by_sn.put(device.sn_key, thing)
            if dropped is not None:
                self._sn_keys.pop(dropped.id, None)
        return loaded

    def build_from_document(self, document: Document) -> Thing:
        """Return the thing of a whole document of `things`."""
        return _build_stored_thing(self.store.build_stored_thing(document))

    async def build_thing(self, device: Device) -> Thing:
        """Return the thing of a device, with its TSL."""
        (thing,) = await self.build_things([device])
        return thing

    async def build_things(self, devices: Sequence[Device]) -> list[Thing]:
        """Return the things of devices, with their TSLs, in the same order."""
        keys = [(device.tenant, device.model, device.tsl_version) for device in devices]
        tsls = await self._tsls.find_all_or_generic(keys)
        return [
            _build_device_thing(device, tsls[key])
            for device, key in zip(devices, keys, strict=True)
        ]

    async def get_device(self, principal: Principal, device_id: int) -> Device:
        """Return a device of the calling application; raise `NotFound` or `Forbidden`."""
        application = require_application(principal)
        device = await self._devices.find(principal.tenant, device_id, application)
        if device is None:
            raise device_not_found(device_id)
        return device

    async def get_thing(self, principal: Principal, device_id: int) -> Thing:
        """Return a device of the calling application, with its TSL; raise like `get_device`."""
        application = require_application(principal)
        device_with_tsl = await self._devices.queries.find_with_tsl_hash(
            principal.tenant, device_id, application
        )
        if device_with_tsl is None:
            raise device_not_found(device_id)
        device, content_hash = device_with_tsl
        tsl = self._tsls.find_cached(content_hash) if content_hash else None
        return await self.build_thing(device) if tsl is None else _build_device_thing(device, tsl)

    async def find_all_visible(self, principal: Principal, ids: Sequence[int]) -> dict[int, Thing]:
        """Return those of `ids` that the calling application may see, by id.

        Raises `Forbidden` for callers that are not applications.
        """
        application = require_application(principal)
        devices = await self._devices.find_all(principal.tenant, ids, application)
        return {thing.id: thing for thing in await self.build_things(devices)}

    async def find_sender(self, principal: Principal, sn: str) -> Thing:
        """Return the thing of the device that calls `/ingest` with its own SN.

        Raises `Forbidden` for the SN of another device, `NotFound` for an unknown one.
        """
        if principal.kind is not PrincipalKind.DEVICE or principal.subject.upper() != sn.upper():
            raise Forbidden("a device speaks only for itself", field="sn")
        things = await self.find_by_sn([sn])
        if sn not in things:
            raise NotFound(f"there is no device {sn}", field="sn", code="device_not_found")
        return things[sn]


def _build_device_thing(device: Device, tsl: Tsl) -> Thing:
    return Thing(
        id=device.id,
        sn=device.sn,
        tenant=device.tenant,
        model=device.model,
        tsl_version=device.tsl_version,
        application_id=device.application_id,
        data_storage=device.data_storage,
        device_type=device.device_type,
        online=device.connect_status == "ONLINE",
        profile=event_profile(device),
        tsl=tsl,
        reported_fields=reported_fields(device),
        loaded_at=time.monotonic(),
        integration=device.integration,
        additional=device.additional,
        owned_since=device.owned_since,
        needs_configuration=device.rps_status == "WAITING",
    )


def _build_stored_thing(stored: StoredThing) -> Thing:
    """Return a thing of an integration, or a custom entity, for reports."""
    return Thing(
        id=stored.id,
        sn=internal_sn(stored.id),
        tenant=stored.tenant,
        model="",
        tsl_version="",
        application_id=None,
        data_storage=True,
        device_type="COMMON",
        online=False,
        profile=DeviceProfile(
            device_id=stored.id, sn="", thing_key=integration_key(stored.integration)
        ),
        tsl=stored.tsl,
        reported_fields={},
        loaded_at=time.monotonic(),
        integration=stored.integration,
        device=False,
    )


class GrantedDevices:
    """Finds devices that a caller may see."""

    def __init__(self, store: DeviceStore, grants: GrantReader) -> None:
        self._store = store
        self._grants = grants

    async def find(self, principal: Principal, device_id: int) -> Device:
        """Return the device if the user may see it.

        Otherwise raises, as consoles expect, `Forbidden` if the user has no grants at all, and
        `NotFound` if the user has any.
        """
        grants = await self._grants.read(principal)
        if grants.is_empty:
            raise Forbidden("user does not have data permission")
        device = await self._store.find(principal.tenant, device_id)
        if device is None or not grants.allows_device(device_id, device.integration, device.group):
            raise device_not_visible(device_id)
        return device

    async def filter_visible(self, principal: Principal, ids: Sequence[int]) -> set[int]:
        """Return those of `ids` that the application owns, or that the user may see."""
        if principal.kind is PrincipalKind.APPLICATION:
            application = require_application(principal)
            owned = await self._store.find_all(principal.tenant, ids, application)
            return {device.id for device in owned}
        grants = await self._grants.read(principal)
        return {
            device.id
            for device in await self._store.find_all(principal.tenant, ids)
            if grants.allows_device(device.id, device.integration, device.group)
        }


def device_not_visible(device_id: int) -> NotFound:
    """Return 404: the device does not exist, or the user may not see it."""
    return NotFound(f"device {device_id} not found", field="device_id")
