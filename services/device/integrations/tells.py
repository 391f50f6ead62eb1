"""What integrations tell and ask: of their own devices and of themselves, and of nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from libs.common.clock import now_ms
from libs.common.contracts.integrations import (
    Acknowledged,
    DeviceRef,
    GetOwnValues,
    GetTsl,
    GotTsl,
    ListDevices,
    ListedDevices,
    OwnValues,
    PutDevice,
    TellEvent,
    TellOwnReport,
    TellReply,
    TellReport,
)
from libs.common.errors import NotFound, TooLarge
from libs.common.things import own_sn
from libs.common.tsl import TslDocument, to_wire
from services.device.devices.bringing import Brought, DeviceBringer, ref_of
from services.device.integrations.known import IntegrationsOverRpc
from services.device.reports.checking import check
from services.device.reports.uplink import MAX_PAYLOAD
from services.device.things import Thing
from services.device.things.model import Device
from services.device.things.store import DeviceStore


class OwnThings(Protocol):
    """Keeps the things of integrations."""

    async def ensure(self, tenant: str, manifest: Any) -> dict[str, Any]:
        """The document of the integration's thing in a tenant."""


class Directory(Protocol):
    """Makes things of documents."""

    async def thing(self, device: Device) -> Thing:
        """The thing that a device is."""

    async def by_sn(self, sns: Sequence[str]) -> dict[str, Thing]:
        """The things of `sns`."""


class Speaker(Protocol):
    """Speaks for things."""

    async def say(self, thing: Thing, channel: str, payload: bytes, message_id: str | None) -> None:
        """Say it; with an id once, however often within two minutes."""

    async def report(self, thing: Thing, properties: dict[str, Any]) -> None:
        """Report properties, and wait until they are stored."""


class Presence(Protocol):
    """Knows which devices are heard."""

    async def heard(self, thing: Thing) -> None:
        """A device has spoken."""


class Catalogue(Protocol):
    """Has the TSLs of products."""

    async def tsl(self, tenant: str, model: str, version: str) -> TslDocument:
        """The document of one version."""


class Latest(Protocol):
    """Latest values."""

    async def of(self, thing_ids: Sequence[int]) -> Mapping[int, dict[str, Any]]:
        """The latest value of each property, by thing."""


class IntegrationTells:
    """Answers what integrations say on the bus; `who` is proven by the subject."""

    def __init__(
        self,
        *,
        integrations: IntegrationsOverRpc,
        own: OwnThings,
        devices: DeviceStore,
        directory: Directory,
        speaker: Speaker,
        presence: Presence,
        catalogue: Catalogue,
        latest: Latest,
        bringer: DeviceBringer,
        retention_ms: int,
    ) -> None:
        self._integrations = integrations
        self._own = own
        self._devices = devices
        self._directory = directory
        self._speaker = speaker
        self._presence = presence
        self._catalogue = catalogue
        self._latest = latest
        self._bringer = bringer
        self._retention_ms = retention_ms

    async def report(self, who: str, told: TellReport) -> Acknowledged:
        """A device of the integration reports."""
        body: dict[str, Any] = {"properties": told.properties}
        return await self._say(
            who, told.tenant, told.identifier, "report", body, told.ts, told.report_id
        )

    async def event(self, who: str, told: TellEvent) -> Acknowledged:
        """An event of a device."""
        body = {"eventId": told.event_id, "outputs": told.outputs}
        return await self._say(who, told.tenant, told.identifier, "event", body, told.ts)

    async def reply(self, who: str, told: TellReply) -> Acknowledged:
        """What became of a command."""
        body: dict[str, Any] = {"commandId": told.command_id, "status": told.status}
        body |= {} if told.outputs is None else {"outputs": told.outputs}
        body |= {} if told.error is None else {"error": told.error}
        return await self._say(who, told.tenant, told.identifier, "reply", body, None)

    async def own_report(self, who: str, told: TellOwnReport) -> Acknowledged:
        """Properties of the integration itself; stored when this is answered."""
        thing = await self._thing_of(who, told.tenant)
        now = now_ms()
        raw = msgspec.json.encode({"properties": told.properties})
        check("report", thing, raw, now, self._retention_ms)
        await self._speaker.report(thing, told.properties)
        return Acknowledged()

    async def list_devices(self, who: str, asked: ListDevices) -> ListedDevices:
        """The integration's devices of all tenants, by id."""
        found = await self._devices.of_integration(who, asked.after, asked.limit)
        return ListedDevices(list(map(ref_of, found)))

    async def put_device(self, who: str, wanted: PutDevice) -> DeviceRef:
        """Bring a device in that nobody asked for."""
        brought = Brought(
            tenant=wanted.tenant,
            integration=who,
            name=wanted.name,
            user_id=None,
            new=wanted.device,
        )
        return ref_of(await self._bringer.bring(brought))

    async def get_tsl(self, who: str, asked: GetTsl) -> GotTsl:
        """The TSL of a device."""
        device = await self._device(who, asked.tenant, asked.identifier)
        found = await self._catalogue.tsl(device.tenant, device.model, device.tsl_version)
        return GotTsl(to_wire(found))

    async def own_values(self, who: str, asked: GetOwnValues) -> OwnValues:
        """Latest values of the integration itself."""
        thing = await self._thing_of(who, asked.tenant)
        values = await self._latest.of([thing.id])
        return OwnValues(thing.id, dict(values.get(thing.id, {})))

    async def _say(
        self,
        who: str,
        tenant: str,
        identifier: str,
        channel: str,
        body: dict[str, Any],
        ts: int | None,
        report_id: str | None = None,
    ) -> Acknowledged:
        """Check what a device says and put it on its way, as if the device had said it."""
        device = await self._device(who, tenant, identifier)
        thing = await self._directory.thing(device)
        raw = msgspec.json.encode(body if ts is None else {"ts": ts, **body})
        if len(raw) > MAX_PAYLOAD:
            raise TooLarge(f"a message may have {MAX_PAYLOAD} bytes")
        check(channel, thing, raw, now_ms(), self._retention_ms)
        await self._speaker.say(thing, channel, raw, report_id)
        await self._presence.heard(thing)
        return Acknowledged()

    async def _device(self, who: str, tenant: str, identifier: str) -> Device:
        device = await self._devices.with_identifier(tenant, who, identifier)
        if device is None:
            raise NotFound(f"{who} has no device {identifier[:64]}", field="identifier")
        return device

    async def _thing_of(self, who: str, tenant: str) -> Thing:
        found = await self._integrations.find(who)
        if found is None:
            raise NotFound(f"integration {who} is not known", field="integration")
        document = await self._own.ensure(tenant, found.manifest)
        sn = own_sn(document["_id"])
        return (await self._directory.by_sn([sn]))[sn]
