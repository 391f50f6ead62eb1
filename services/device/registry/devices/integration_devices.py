"""Devices of integrations: adds them by the service of their integration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.bus import NoResponders
from libs.common.contracts.integrations import AddDevice, DeviceRef, Manifest, NewDevice
from libs.common.errors import Conflict, Forbidden, InvalidInput, NotFound, UpstreamFailed
from libs.common.identity import Kind, Principal
from libs.common.identity.grants import GrantReader
from libs.common.integrations.client import (
    IntegrationClient,
    Integrations,
    describe_stopped,
    tsl_of,
)
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Session
from libs.common.things import integration_key, member_key
from libs.common.tsl import InvalidValues, TslDocument, compile_tsl
from services.device.members.members import Member, MemberSet, members_of, number_keys
from services.device.members.values import (
    convert_value,
    integration_fault,
    integration_refusal,
    multiple_error,
    set_value,
    value_faults,
)
from services.device.registry.devices.schemas import CreateDevice, SentLocation
from services.device.registry.devices.search import location_of
from services.device.registry.devices.service import new_device
from services.device.registry.products.service import ProductService
from services.device.registry.products.templates import Templates
from services.device.things.device_store import DeviceStore
from services.device.things.errors import duplicated_device_eui, rps_record_exists
from services.device.things.groups import GROUP_FIELD, GroupStore
from services.device.things.model import Device, DeviceChanges, Location
from services.device.things.product_model import Product, PutProduct
from services.device.things.serial_numbers import SERIAL, SerialTaken, serial_key

INTEGRATION_FIELD = "integration"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDraft:
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
class DeviceProvisioner:
    """Writes devices of integrations."""

    devices: DeviceStore
    ids: IdAllocator
    products: ProductService
    templates: Templates
    groups: GroupStore

    async def add(self, wanted: DeviceDraft) -> Device:
        """Write a new device; raise `NotFound` when its group has just been deleted.

        Raises as `create`, and `Conflict` for an SN that there is already, whoever has it.
        """
        key = serial_key(wanted.new.identifier)
        holder, _ = await self.devices.find_holder(key)
        if holder is None:
            device = await self.create(wanted)
            try:
                await self.add_all([device])
            except SerialTaken:
                holder, _ = await self.devices.find_holder(key)
            else:
                return device
        raise (rps_record_exists if holder == "rps" else duplicated_device_eui)(
            wanted.new.identifier, INTEGRATION_FIELD
        )

    async def create(self, wanted: DeviceDraft) -> Device:
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
        device = new_device(
            await self.ids.allocate(), serial, wanted.tenant, await self._product(wanted)
        )
        device.name, device.additional = wanted.name, wanted.new.additional
        device.integration, device.user_id = wanted.integration, wanted.user_id
        device.group, device.location = await self.find_or_create_group(wanted), wanted.location
        return device

    async def find_or_create_group(self, wanted: DeviceDraft) -> int | None:
        """The group that a device is to be in, made when there is none; raise `InvalidInput`."""
        if not wanted.group_name:
            return None
        return await self.groups.find_or_create(wanted.tenant, wanted.group_name)

    async def add_all(self, devices: Sequence[Device]) -> None:
        """Write new devices, all or none; raise `SerialTaken` when an SN has a holder."""
        groups = {(one.tenant, one.group) for one in devices if one.group is not None}

        async def join(session: Session) -> None:
            for tenant, group in groups:
                await self.groups.join(tenant, group, session)

        await self.devices.insert(devices, join)

    async def provision(self, wanted: DeviceDraft) -> Device:
        """The same; one that the integration has brought before gets the name and `additional`."""
        try:
            return await self.add(wanted)
        except Conflict:
            _, known = await self.devices.find_holder(serial_key(wanted.new.identifier))
            owner = None if known is None else (known.tenant, known.integration)
            if known is None or owner != (wanted.tenant, wanted.integration):
                raise
        changes = DeviceChanges(name=wanted.name, additional=wanted.new.additional)
        return await self.devices.update(wanted.tenant, known.id, changes) or known

    async def _product(self, wanted: DeviceDraft) -> Product:
        """The product of the device; one that the tenant lacks is made of a TSL or a template."""
        new, model = wanted.new, wanted.new.model or None
        if model is not None and not await self.products.has(wanted.tenant, model):
            who = Principal(kind=Kind.USER, tenant=wanted.tenant, subject=str(wanted.user_id or 0))
            if new.tsl is None:
                await self.templates.ensure(who, model)
            else:
                return await self._make(who, model, new.tsl)
        return await self.products.choose(wanted.tenant, model, serial_key(new.identifier))

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


PARAMETERS_FIELD = "param_entities"


class Parameters:
    """The inputs of the service by which an integration adds devices."""

    def __init__(self, manifest: Manifest, document: TslDocument, service: str) -> None:
        self._document = document
        self._service = service
        self._thing = integration_key(manifest.id)
        numbers = {mark: at for at, mark in enumerate(number_keys(document), 1)}
        self._members = members = members_of(document, numbers)
        self._owner = next(
            member
            for member in members.members
            if member.type == "SERVICE" and member.path.removesuffix("@service") == service
        )
        self._inputs = _inputs(members, self._owner)

    def field(self, name: str) -> str:
        """`param_entities.{key}` of an input."""
        return f"{PARAMETERS_FIELD}.{self.entity_key(name)}"

    def entity_key(self, name: str) -> str:
        """The entity key of an input."""
        return f"{member_key(self._thing, self._owner.path)}.{name}"

    def inputs(self) -> list[tuple[str, str, Member]]:
        """Name, entity key and member of each input."""
        return [
            (name, member_key(self._thing, member.path), member)
            for name, member in self._inputs.items()
        ]

    def has(self, name: str) -> bool:
        """Whether there is such an input."""
        return name in self._inputs

    def input_error(self, name: str, text: str, code: str = "") -> InvalidInput:
        """400 for an input that its TSL takes and that cannot be used for another reason."""
        return multiple_error(
            PARAMETERS_FIELD,
            [integration_fault(self.entity_key(name), self._inputs[name], code, text)],
        )

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by their names; raise `InvalidInput` that names the key at fault.

        The key of the service itself may come along; blanks of optional inputs do not count.
        """
        names = {key: name for name, key, _ in self.inputs()}
        own = member_key(self._thing, self._owner.path)
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = names.get(key)
            if name is None:
                if key == own:
                    continue
                raise InvalidInput("is no parameter of it", field=f"{PARAMETERS_FIELD}.{key[:512]}")
            member = self._inputs[name]
            if value not in ("", None) or not member.attribute.get("optional"):
                set_value(values, name.split("."), convert_value(member.value_type, value))
        try:
            return compile_tsl(self._document).check_service_inputs(self._service, values)
        except InvalidValues as error:
            faults = value_faults(self._thing, self._members, self._owner.path, error.faults)
            raise multiple_error(PARAMETERS_FIELD, faults) from error


def _inputs(members: MemberSet, owner: Member) -> dict[str, Member]:
    return {one.path.removeprefix(f"{owner.path}."): one for one in members.children(owner.path)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDeviceForm:
    """What an integration wants to know of a device that it is to add."""

    integration: str
    name: str
    parameters: Parameters
    identifier: str | None
    """The input that names the device, when the integration says which."""


@dataclass(frozen=True, kw_only=True)
class DeviceAdder:
    """Adds devices on behalf of users."""

    integrations: Integrations
    client: IntegrationClient
    device_provisioner: DeviceProvisioner
    grants: GrantReader
    groups: GroupStore

    async def find_form(self, principal: Principal, integration: str) -> AddDeviceForm:
        """The form of an integration.

        Raises `Forbidden` without a grant of it, `NotFound` for one that there never was,
        `InvalidInput` for one that adds no devices, `NoResponders` for one that is away.
        """
        if not (await self.grants.read(principal)).integration(integration):
            raise Forbidden("user does not have data permission", field=INTEGRATION_FIELD)
        found = await self.integrations.find(integration)
        if found is None:
            raise NotFound(f"integration {integration} not found!", field=INTEGRATION_FIELD)
        manifest = found.manifest
        service = manifest.add_device_service
        if service is None:
            raise InvalidInput(
                f"integration {integration} cannot add device!", field=INTEGRATION_FIELD
            )
        if not found.alive:
            raise NoResponders(describe_stopped(integration))
        return AddDeviceForm(
            integration=integration,
            name=manifest.name,
            parameters=Parameters(manifest, tsl_of(manifest), service),
            identifier=manifest.identifier_input,
        )

    async def add(self, principal: Principal, body: CreateDevice) -> None:
        """Let the integration make ready, then write the device.

        Nothing is written when the integration refuses, is late, or breaks off. Raises as `form`,
        and `Conflict` for a device that there is already.
        """
        form = await self.find_form(principal, body.integration)
        wanted = await self.prepare(principal, form, body)
        await self.write(form, wanted)

    async def prepare(
        self, principal: Principal, form: AddDeviceForm, body: CreateDevice
    ) -> DeviceDraft:
        """Let the integration make ready for a device; its group is made by `write`."""
        location = location_of(body.location or SentLocation(), "location.")
        group_name = (body.group_name or "").strip()
        if group_name:
            await self.groups.check_room(principal.tenant, group_name)
        wanted = AddDevice(
            tenant=principal.tenant,
            user_id=principal.user_id,
            name=body.name,
            params=form.parameters.read(body.param_entities),
        )
        new = await self._ask(form, wanted)
        return DeviceDraft(
            tenant=principal.tenant,
            integration=form.integration,
            name=body.name,
            user_id=principal.user_id,
            new=new,
            params=wanted.params,
            group_name=group_name,
            location=location,
        )

    async def write(self, form: AddDeviceForm, wanted: DeviceDraft) -> Device:
        """Write a device that its integration is ready for; raise `Conflict` as `add`."""
        parameters = form.parameters
        try:
            return await self.device_provisioner.add(wanted)
        except InvalidInput as error:
            if error.field == GROUP_FIELD:
                raise
            if not parameters.has("model"):
                raise UpstreamFailed(f"the integration's device: {error.text}") from error
            raise parameters.input_error("model", error.message) from error
        except Conflict as error:
            for name, value in wanted.params.items():
                if value == wanted.new.identifier:
                    text = error.message.removeprefix(f"{INTEGRATION_FIELD}: ")
                    raise Conflict(text, field=parameters.field(name), code=error.code) from error
            raise

    async def _ask(self, form: AddDeviceForm, wanted: AddDevice) -> NewDevice:
        try:
            return await self.client.add_device(form.integration, wanted)
        except InvalidInput as error:  # its text begins with the input at fault
            name = error.message.partition(":")[0]
            if not form.parameters.has(name):
                raise integration_refusal(error.field, error) from error
            raise form.parameters.input_error(name, error.message, error.code) from error
