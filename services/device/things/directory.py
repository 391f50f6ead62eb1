"""The directory of things by id and SN, kept in memory, and devices that users see.

By id they are read as they are now. By SN a thing is kept for `LIFE` seconds and dropped earlier
when an event says that it has changed. Unknown SNs are not kept: a device added a moment ago must
be known to its first report.
"""

import time
from collections.abc import Iterable, Sequence

from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.contracts.events import DeviceProfile
from libs.common.errors import Forbidden, NotFound
from libs.common.identity import Kind, Principal
from libs.common.identity.grants import GrantReader
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database, Document
from libs.common.things import integration_key, internal_sn, internal_thing
from libs.common.tsl import Tsl
from services.device.things.device_store import DeviceStore
from services.device.things.errors import device_not_found
from services.device.things.model import Device, Thing, facts_of, profile_of
from services.device.things.schemas import application_of
from services.device.things.specifications import Tsls
from services.device.things.thing_store import OwnThing, OwnThings

LIFE = 60.0
KEPT = 50_000
"""Things that are kept: some 1.5 KB each."""


class ThingDirectory:
    """Things by id and SN; one per process."""

    def __init__(self, database: Database, devices: DeviceStore, tsls: Tsls) -> None:
        self._devices = devices
        self._tsls = tsls
        self._by_sn: LruCache[str, Thing] = LruCache(KEPT)
        self._sn_keys: dict[int, str] = {}
        self.own = OwnThings(database, tsls)

    async def watch(self, bus: Bus) -> None:
        """Drop a thing when an event says that it has changed."""

        async def drop(message: Msg) -> None:
            self.forget(int(message.subject.split(".")[3]))

        for change in ("added", "updated", "deleted"):
            await bus.client.subscribe(f"event.*.device.*.{change}", cb=drop)

    def forget(self, device_id: int) -> None:
        """Read the thing anew when it is next asked for."""
        key = self._sn_keys.pop(device_id, None)
        if key is not None:
            self._by_sn.pop(key)

    async def by_sn(self, sns: Iterable[str], life: float = LIFE) -> dict[str, Thing]:
        """The things of `sns`, keyed as they were asked for; unknown ones are missing.

        None was read more than `life` seconds ago.
        """
        oldest = time.monotonic() - life
        found: dict[str, Thing] = {}
        missing: dict[str, str] = {}
        own: dict[str, int] = {}
        for sn in sns:
            thing_id = internal_thing(sn)
            if thing_id is not None:
                own[sn] = thing_id
                continue
            key = sn.upper()
            thing = self._by_sn.get(key)
            if thing is not None and thing.loaded > oldest:
                found[sn] = thing
            else:
                missing[sn] = key
        if missing:
            loaded = await self._load(set(missing.values()))
            found.update({sn: loaded[key] for sn, key in missing.items() if key in loaded})
        if own:
            things = await self.own.of(own.values())
            found.update({sn: _own(things[one]) for sn, one in own.items() if one in things})
        return found

    async def _load(self, keys: set[str]) -> dict[str, Thing]:
        """Read things by SN in capitals."""
        loaded: dict[str, Thing] = {}
        devices = await self._devices.with_serials(keys)
        for device, thing in zip(devices, await self.things(devices), strict=True):
            loaded[device.sn_key] = thing
            self._sn_keys[thing.id] = device.sn_key
            dropped = self._by_sn.put(device.sn_key, thing)
            if dropped is not None:
                self._sn_keys.pop(dropped.id, None)
        return loaded

    def own_thing(self, document: Document) -> Thing:
        """The thing that a whole document of `things` is."""
        return _own(self.own.thing(document))

    async def thing(self, device: Device) -> Thing:
        """The thing that a device is."""
        (found,) = await self.things([device])
        return found

    async def things(self, devices: Sequence[Device]) -> list[Thing]:
        """The things that devices are."""
        keys = [(device.tenant, device.model, device.tsl_version) for device in devices]
        tsls = await self._tsls.find_all(keys)
        return [_thing(device, tsls[key]) for device, key in zip(devices, keys, strict=True)]

    async def device(self, principal: Principal, device_id: int) -> Device:
        """The device, when `principal` may see it; else `NotFound`."""
        application = application_of(principal)
        device = await self._devices.find(principal.tenant, device_id, application)
        if device is None:
            raise device_not_found(device_id)
        return device

    async def visible(self, principal: Principal, device_id: int) -> Thing:
        """The thing with its TSL, when `principal` may see it; else `NotFound`."""
        return await self.thing(await self.device(principal, device_id))

    async def all_visible(self, principal: Principal, ids: Sequence[int]) -> dict[int, Thing]:
        """The things of `ids` that `principal` may see, by id; the others are missing."""
        application = application_of(principal)
        devices = await self._devices.find_all(principal.tenant, ids, application)
        return {thing.id: thing for thing in await self.things(devices)}

    async def speaking(self, principal: Principal, sn: str) -> Thing:
        """The thing that speaks for itself at `/ingest`."""
        if principal.kind is not Kind.DEVICE or principal.subject.upper() != sn.upper():
            raise Forbidden("a device speaks only for itself", field="sn")
        found = await self.by_sn([sn])
        if sn not in found:
            raise NotFound(f"there is no device {sn}", field="sn", code="device_not_found")
        return found[sn]


def _thing(device: Device, tsl: Tsl) -> Thing:
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
        profile=profile_of(device),
        tsl=tsl,
        facts=facts_of(device),
        loaded=time.monotonic(),
        integration=device.integration,
        additional=device.additional,
        owned_since=device.owned_since,
    )


def _own(own: OwnThing) -> Thing:
    """A thing that is no device, as reports see it."""
    return Thing(
        id=own.id,
        sn=internal_sn(own.id),
        tenant=own.tenant,
        model="",
        tsl_version="",
        application_id=None,
        data_storage=True,
        device_type="COMMON",
        online=False,
        profile=DeviceProfile(device_id=own.id, sn="", thing_key=integration_key(own.integration)),
        tsl=own.tsl,
        facts={},
        loaded=time.monotonic(),
        integration=own.integration,
        device=False,
    )


class GrantedDevices:
    """Finds devices on behalf of users."""

    def __init__(self, store: DeviceStore, grants: GrantReader) -> None:
        self._store = store
        self._grants = grants

    async def find(self, principal: Principal, device_id: int) -> Device:
        """The device, when the user sees it.

        Raises `Forbidden` for a user who sees nothing at all, else `NotFound`, as consoles
        expect it.
        """
        grants = await self._grants.of(principal)
        if grants.nothing:
            raise Forbidden("user does not have data permission")
        device = await self._store.find(principal.tenant, device_id)
        if device is None or not grants.device(device_id, device.integration, device.group):
            raise not_seen(device_id)
        return device


def not_seen(device_id: int) -> NotFound:
    """404: there is no such device, or none that the user sees."""
    return NotFound(f"device {device_id} not found", field="device_id")
