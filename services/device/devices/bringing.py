"""Writes devices that integrations bring: one transaction, or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.contracts.integrations import DeviceRef, NewDevice
from libs.common.errors import Conflict, InvalidInput, UpstreamFailed
from libs.common.identity import Kind, Principal
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Session
from services.device.devices.records import begin
from services.device.products.service import ProductService
from services.device.products.templates.service import Templates
from services.device.things.device_store import DeviceStore
from services.device.things.errors import device_is_taken, rps_record_exists
from services.device.things.groups import GroupStore
from services.device.things.model import Device, DeviceChanges, Location
from services.device.things.product_model import Product, PutProduct
from services.device.things.serial_numbers import SERIAL, SerialTaken, key_of

FIELD = "integration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """A device as an integration has it."""

    tenant: str
    integration: str
    name: str
    user_id: int | None
    """Who asked for it; None when the integration found it by itself."""
    new: NewDevice
    params: Mapping[str, Any] = field(default_factory=dict)
    """What the integration was told of it."""
    group_name: str = ""
    """The group it is to be in, which is made with the device when there is none; blank: none."""
    location: Location | None = None


@dataclass(frozen=True)
class DeviceBringer:
    """Writes devices of integrations."""

    devices: DeviceStore
    ids: IdAllocator
    products: ProductService
    templates: Templates
    groups: GroupStore

    async def add(self, wanted: Brought) -> Device:
        """Write a new device; raise `NotFound` when its group has just been deleted.

        Raises as `make`, and `Conflict` for an SN that there is already, whoever has it.
        """
        key = key_of(wanted.new.identifier)
        holder, _ = await self.devices.with_serial(key)
        if holder is None:
            device = await self.make(wanted)
            try:
                await self.add_all([device])
            except SerialTaken:
                holder, _ = await self.devices.with_serial(key)
            else:
                return device
        raise (rps_record_exists if holder == "rps" else device_is_taken)(
            wanted.new.identifier, FIELD
        )

    async def make(self, wanted: Brought) -> Device:
        """A new device, which is not written yet.

        Raises `InvalidInput` for a model that there is not and for a group beyond the most,
        `UpstreamFailed` for an integration that names nonsense.
        """
        serial = wanted.new.identifier
        if not SERIAL.fullmatch(serial):
            raise UpstreamFailed(
                f"integration {wanted.integration} named a device {serial!r}: an"
                " identifier has 1 to 64 letters, digits, '_' or '-'"
            )
        device = begin(await self.ids.take(), serial, wanted.tenant, await self._product(wanted))
        device.name, device.additional = wanted.name, wanted.new.additional
        device.integration, device.user_id = wanted.integration, wanted.user_id
        device.group, device.location = await self.group_of(wanted), wanted.location
        return device

    async def group_of(self, wanted: Brought) -> int | None:
        """The group that a device is to be in, made when there is none; raise `InvalidInput`."""
        if not wanted.group_name:
            return None
        return await self.groups.of_name(wanted.tenant, wanted.group_name)

    async def add_all(self, devices: Sequence[Device]) -> None:
        """Write new devices, all or none; raise `SerialTaken` when an SN has a holder."""
        groups = {(one.tenant, one.group) for one in devices if one.group is not None}

        async def join(session: Session) -> None:
            for tenant, group in groups:
                await self.groups.join(tenant, group, session)

        await self.devices.insert(devices, join)

    async def bring(self, wanted: Brought) -> Device:
        """The same; one that the integration has brought before gets the name and `additional`."""
        try:
            return await self.add(wanted)
        except Conflict:
            _, known = await self.devices.with_serial(key_of(wanted.new.identifier))
            owner = None if known is None else (known.tenant, known.integration)
            if known is None or owner != (wanted.tenant, wanted.integration):
                raise
        changes = DeviceChanges(name=wanted.name, additional=wanted.new.additional)
        return await self.devices.update(wanted.tenant, known.id, changes) or known

    async def _product(self, wanted: Brought) -> Product:
        """The product of the device; one that the tenant lacks is made of a TSL or a template."""
        new, model = wanted.new, wanted.new.model or None
        if model is not None and not await self.products.has(wanted.tenant, model):
            who = Principal(kind=Kind.USER, tenant=wanted.tenant, subject=str(wanted.user_id or 0))
            if new.tsl is None:
                await self.templates.ensure(who, model)
            else:
                return await self._make(who, model, new.tsl)
        return await self.products.choose(wanted.tenant, model, key_of(new.identifier))

    async def _make(self, who: Principal, model: str, tsl: dict[str, Any]) -> Product:
        try:
            return await self.products.put(who, model, PutProduct(name=model, tsl=tsl))
        except InvalidInput as error:
            raise UpstreamFailed(f"the integration's product: {error.text}") from error


def ref_of(device: Device) -> DeviceRef:
    """A device as integrations know it."""
    return DeviceRef(
        tenant=device.tenant,
        device_id=device.id,
        identifier=device.identifier,
        name=device.name,
        model=device.model,
        additional=device.additional or {},
    )
