"""Addition of devices by their integrations, for users or on the integration's own initiative."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.bus import NoResponders
from libs.common.contracts.integrations import AddDevice, DeviceRef, Manifest, NewDevice
from libs.common.decoding import copy_fields
from libs.common.errors import Conflict, Forbidden, InvalidInput, NotFound, UpstreamFailed
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.grants import GrantReader
from libs.common.integrations.client import (
    IntegrationClient,
    Integrations,
    describe_stopped_integration,
    parse_manifest_tsl,
)
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Session
from libs.common.things import integration_key, member_key
from libs.common.tsl import InvalidValues, TslDocument, compile_tsl
from services.device.members.members import Member, MemberSet, build_members, number_keys
from services.device.members.values import (
    convert_faults,
    convert_value,
    error_with_all_faults,
    integration_fault,
    integration_rejection,
    set_value_at_path,
)
from services.device.registry.devices.schemas import CreateDevice, LocationInput
from services.device.registry.devices.search import parse_location
from services.device.registry.devices.service import new_device
from services.device.registry.products.service import ProductService
from services.device.registry.products.templates import TemplateService
from services.device.things.device_store import DeviceStore
from services.device.things.errors import duplicated_eui_error, rps_record_exists
from services.device.things.groups import GROUP_REQUEST_FIELD, GroupStore
from services.device.things.model import Device, DeviceChanges, Location
from services.device.things.product_model import Product, PutProduct
from services.device.things.serial_numbers import SERIAL_PATTERN, SerialTaken, serial_key

INTEGRATION_FIELD = "integration"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDraft:
    """A device that a user or an integration adds, as its integration describes it."""

    tenant: str
    integration: str
    name: str
    user_id: int | None
    """The user who adds the device; None when the integration adds it by itself."""
    new: NewDevice
    params: Mapping[str, Any] = field(default_factory=dict)
    """Inputs, by name, of the service by which the integration adds devices."""
    group_name: str = ""
    """The group of the device, created if missing; blank for no group."""
    location: Location | None = None


@dataclass(frozen=True)
class IntegrationDeviceWriter:
    """Adds and updates devices of integrations in the database."""

    devices: DeviceStore
    ids: IdAllocator
    products: ProductService
    templates: TemplateService
    groups: GroupStore

    async def add(self, draft: DeviceDraft) -> Device:
        """Write a new device.

        Raises like `build`, `Conflict` for an SN in use, and `NotFound` when its group was deleted
        meanwhile.
        """
        key = serial_key(draft.new.identifier)
        holder, _ = await self.devices.find_holder(key)
        if holder is None:
            device = await self.build(draft)
            try:
                await self.insert_all([device])
            except SerialTaken:
                holder, _ = await self.devices.find_holder(key)
            else:
                return device
        raise (rps_record_exists if holder == "rps" else duplicated_eui_error)(
            draft.new.identifier, INTEGRATION_FIELD
        )

    async def build(self, draft: DeviceDraft) -> Device:
        """Return a new device, which is not written yet; create its group and product if missing.

        Raises `InvalidInput` for an unknown model and at the limit of groups, `UpstreamFailed` when
        the integration returns an invalid SN or product.
        """
        serial = draft.new.identifier
        if not SERIAL_PATTERN.fullmatch(serial):
            raise UpstreamFailed(
                f"integration {draft.integration} returned the identifier {serial!r}: it must"
                " be 1 to 64 letters, digits, '_' or '-'"
            )
        device = new_device(
            await self.ids.allocate(),
            serial,
            draft.tenant,
            await self._find_or_create_product(draft),
        )
        device.name, device.additional = draft.name, draft.new.additional
        device.integration, device.user_id = draft.integration, draft.user_id
        device.group, device.location = await self.find_or_create_group(draft), draft.location
        return device

    async def find_or_create_group(self, draft: DeviceDraft) -> int | None:
        """Return the id of a new device's group, created if missing; None for no group.

        Raises `InvalidInput` at the limit of groups.
        """
        if not draft.group_name:
            return None
        return await self.groups.find_or_create(draft.tenant, draft.group_name)

    async def insert_all(self, devices: Sequence[Device]) -> None:
        """Write all new devices, or none.

        Raises `SerialTaken` when an SN has a holder, and `NotFound` for a deleted group.
        """
        groups = {(device.tenant, device.group) for device in devices if device.group is not None}

        async def join(session: Session) -> None:
            for tenant, group in groups:
                await self.groups.record_join(tenant, group, session)

        await self.devices.insert(devices, join)

    async def add_or_update(self, draft: DeviceDraft) -> Device:
        """Add a device like `add`, or update name and data if the integration has the device.

        Raises `Conflict` if the device belongs to another tenant or integration.
        """
        try:
            return await self.add(draft)
        except Conflict:
            _, existing = await self.devices.find_holder(serial_key(draft.new.identifier))
            owner = None if existing is None else (existing.tenant, existing.integration)
            if existing is None or owner != (draft.tenant, draft.integration):
                raise
        changes = DeviceChanges(name=draft.name, additional=draft.new.additional)
        return await self.devices.update(draft.tenant, existing.id, changes) or existing

    async def _find_or_create_product(self, draft: DeviceDraft) -> Product:
        """Return the product of a device, created from the draft's TSL or a template if missing."""
        new, model = draft.new, draft.new.model or None
        if model is not None and not await self.products.exists(draft.tenant, model):
            principal = Principal(
                kind=PrincipalKind.USER, tenant=draft.tenant, subject=str(draft.user_id or 0)
            )
            if new.tsl is None:
                await self.templates.create_if_missing(principal, model)
            else:
                return await self._create_product(principal, model, new.tsl)
        return await self.products.choose_for_device(
            draft.tenant, model, serial_key(new.identifier)
        )

    async def _create_product(
        self, principal: Principal, model: str, tsl: dict[str, Any]
    ) -> Product:
        try:
            return await self.products.put(principal, model, PutProduct(name=model, tsl=tsl))
        except InvalidInput as error:
            raise UpstreamFailed(f"the integration's product: {error.text}") from error


def to_integration_ref(device: Device) -> DeviceRef:
    """Return the reference by which integrations know a device."""
    return copy_fields(DeviceRef, device, device_id=device.id, additional=device.additional or {})


PARAMETERS_FIELD = "param_entities"


class AddDeviceParameters:
    """The inputs of the service by which an integration adds devices."""

    def __init__(self, manifest: Manifest, document: TslDocument, service: str) -> None:
        self._document = document
        self._service = service
        self._thing = integration_key(manifest.id)
        numbers = {key: number for number, key in enumerate(number_keys(document), 1)}
        self._members = members = build_members(document, numbers)
        self._owner = next(
            member
            for member in members.members
            if member.type == "SERVICE" and member.path.removesuffix("@service") == service
        )
        self._inputs = _find_inputs(members, self._owner)

    def field_path(self, name: str) -> str:
        """Return the field `param_entities.{key}` of an input."""
        return f"{PARAMETERS_FIELD}.{self.entity_key(name)}"

    def entity_key(self, name: str) -> str:
        """Return the entity key of an input."""
        return f"{member_key(self._thing, self._owner.path)}.{name}"

    def list_inputs(self) -> list[tuple[str, str, Member]]:
        """Return name, entity key and member of each input."""
        return [
            (name, member_key(self._thing, member.path), member)
            for name, member in self._inputs.items()
        ]

    def has_input(self, name: str) -> bool:
        """Return whether the service has this input."""
        return name in self._inputs

    def input_error(self, name: str, text: str, code: str = "") -> InvalidInput:
        """Return the error 400 for an input that is valid by the TSL but cannot be used."""
        return error_with_all_faults(
            PARAMETERS_FIELD,
            [integration_fault(self.entity_key(name), self._inputs[name], code, text)],
        )

    def parse_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs by name; raise `InvalidInput` for the key at fault.

        The key of the service itself is ignored, and so are blank optional inputs.
        """
        names = {key: name for name, key, _ in self.list_inputs()}
        service_key = member_key(self._thing, self._owner.path)
        values: dict[str, Any] = {}
        for key, value in inputs.items():
            name = names.get(key)
            if name is None:
                if key == service_key:
                    continue
                raise InvalidInput("is no parameter", field=f"{PARAMETERS_FIELD}.{key[:512]}")
            member = self._inputs[name]
            if value not in ("", None) or not member.attribute.get("optional"):
                set_value_at_path(values, name.split("."), convert_value(member.value_type, value))
        try:
            return compile_tsl(self._document).check_service_inputs(self._service, values)
        except InvalidValues as error:
            faults = convert_faults(self._thing, self._members, self._owner.path, error.faults)
            raise error_with_all_faults(PARAMETERS_FIELD, faults) from error


def _find_inputs(members: MemberSet, owner: Member) -> dict[str, Member]:
    return {
        member.path.removeprefix(f"{owner.path}."): member
        for member in members.children(owner.path)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDeviceForm:
    """The form for a new device of an integration."""

    integration: str
    name: str
    parameters: AddDeviceParameters
    identifier: str | None
    """The input that identifies the device, if the integration names one."""


@dataclass(frozen=True, kw_only=True)
class DeviceAdder:
    """Adds devices on behalf of users."""

    integrations: Integrations
    client: IntegrationClient
    integration_device_writer: IntegrationDeviceWriter
    grants: GrantReader
    groups: GroupStore

    async def find_form(self, principal: Principal, integration: str) -> AddDeviceForm:
        """Return the form of an integration.

        Raises `Forbidden` without a grant, `NotFound` for an unknown integration, `InvalidInput` if
        the integration cannot add devices, and `NoResponders` if it is not running.
        """
        if not (await self.grants.read(principal)).allows_integration(integration):
            raise Forbidden("user does not have data permission", field=INTEGRATION_FIELD)
        known_integration = await self.integrations.find(integration)
        if known_integration is None:
            raise NotFound(f"integration {integration} not found!", field=INTEGRATION_FIELD)
        manifest = known_integration.manifest
        service = manifest.add_device_service
        if service is None:
            raise InvalidInput(
                f"integration {integration} cannot add device!", field=INTEGRATION_FIELD
            )
        if not known_integration.alive:
            raise NoResponders(describe_stopped_integration(integration))
        return AddDeviceForm(
            integration=integration,
            name=manifest.name,
            parameters=AddDeviceParameters(manifest, parse_manifest_tsl(manifest), service),
            identifier=manifest.identifier_input,
        )

    async def add(self, principal: Principal, body: CreateDevice) -> None:
        """Add a device through its integration.

        The device is not written when the integration rejects it, is late or fails. Raises like
        `find_form`, and `Conflict` for an SN in use.
        """
        form = await self.find_form(principal, body.integration)
        draft = await self.request_draft(principal, form, body)
        await self.write_draft(form, draft)

    async def request_draft(
        self, principal: Principal, form: AddDeviceForm, body: CreateDevice
    ) -> DeviceDraft:
        """Call the integration to accept a new device, and return the device as a draft.

        Nothing is written: `write_draft` writes the device and creates its group.
        """
        location = parse_location(body.location or LocationInput(), "location.")
        group_name = (body.group_name or "").strip()
        if group_name:
            await self.groups.check_exists_or_fits(principal.tenant, group_name)
        request = AddDevice(
            tenant=principal.tenant,
            user_id=principal.user_id,
            name=body.name,
            params=form.parameters.parse_inputs(body.param_entities),
        )
        new = await self._call_integration(form, request)
        return DeviceDraft(
            tenant=principal.tenant,
            integration=form.integration,
            name=body.name,
            user_id=principal.user_id,
            new=new,
            params=request.params,
            group_name=group_name,
            location=location,
        )

    async def write_draft(self, form: AddDeviceForm, draft: DeviceDraft) -> Device:
        """Write a device that its integration accepted; raise `Conflict` like `add`."""
        parameters = form.parameters
        try:
            return await self.integration_device_writer.add(draft)
        except InvalidInput as error:
            if error.field == GROUP_REQUEST_FIELD:
                raise
            if not parameters.has_input("model"):
                raise UpstreamFailed(f"the integration's device: {error.text}") from error
            raise parameters.input_error("model", error.message) from error
        except Conflict as error:
            for name, value in draft.params.items():
                if value == draft.new.identifier:
                    text = error.message.removeprefix(f"{INTEGRATION_FIELD}: ")
                    raise Conflict(
                        text, field=parameters.field_path(name), code=error.code
                    ) from error
            raise

    async def _call_integration(self, form: AddDeviceForm, request: AddDevice) -> NewDevice:
        try:
            return await self.client.add_device(form.integration, request)
        except InvalidInput as error:  # its text begins with the input at fault
            name = error.message.partition(":")[0]
            if not form.parameters.has_input(name):
                raise integration_rejection(error.field, error) from error
            raise form.parameters.input_error(name, error.message, error.code) from error
