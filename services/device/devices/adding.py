"""Adds devices through their integrations, in one step or not at all."""

from dataclasses import dataclass

from libs.common.bus import NobodyAnswers
from libs.common.contracts.integrations import AddDevice, NewDevice
from libs.common.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    UpstreamFailed,
)
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.integrations.client import IntegrationClient, Integrations, away, tsl_of
from services.device.devices.bringing import FIELD, Brought, DeviceBringer
from services.device.devices.parameters import Parameters
from services.device.devices.places import location_of
from services.device.devices.schemas import CreateDevice, SentLocation
from services.device.members.values import integration_refusal
from services.device.things.groups import GROUP_FIELD, GroupStore
from services.device.things.model import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
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
    bringer: DeviceBringer
    grants: GrantReader
    groups: GroupStore

    async def form(self, principal: Principal, integration: str) -> Form:
        """The form of an integration.

        Raises `Forbidden` without a grant of it, `NotFound` for one that there never was,
        `InvalidInput` for one that adds no devices, `NobodyAnswers` for one that is away.
        """
        if not (await self.grants.of(principal)).integration(integration):
            raise Forbidden("user does not have data permission", field=FIELD)
        found = await self.integrations.find(integration)
        if found is None:
            raise NotFound(f"integration {integration} not found!", field=FIELD)
        manifest = found.manifest
        service = manifest.add_device_service
        if service is None:
            raise InvalidInput(f"integration {integration} cannot add device!", field=FIELD)
        if not found.alive:
            raise NobodyAnswers(away(integration))
        return Form(
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
        form = await self.form(principal, body.integration)
        wanted = await self.prepare(principal, form, body)
        await self.write(form, wanted)

    async def prepare(self, principal: Principal, form: Form, body: CreateDevice) -> Brought:
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
        return Brought(
            tenant=principal.tenant,
            integration=form.integration,
            name=body.name,
            user_id=principal.user_id,
            new=new,
            params=wanted.params,
            group_name=group_name,
            location=location,
        )

    async def write(self, form: Form, wanted: Brought) -> Device:
        """Write a device that its integration is ready for; raise `Conflict` as `add`."""
        parameters = form.parameters
        try:
            return await self.bringer.add(wanted)
        except InvalidInput as error:
            if error.field == GROUP_FIELD:
                raise
            if not parameters.has("model"):
                raise UpstreamFailed(f"the integration's device: {error.text}") from error
            raise parameters.refused("model", error.message) from error
        except Conflict as error:
            for name, value in wanted.params.items():
                if value == wanted.new.identifier:
                    text = error.message.removeprefix(f"{FIELD}: ")
                    raise Conflict(text, field=parameters.key(name), code=error.code) from error
            raise

    async def _ask(self, form: Form, wanted: AddDevice) -> NewDevice:
        try:
            return await self.client.add_device(form.integration, wanted)
        except InvalidInput as error:  # its text begins with the input at fault
            name = error.message.partition(":")[0]
            if not form.parameters.has(name):
                raise integration_refusal(error.field, error) from error
            raise form.parameters.refused(name, error.message, error.code) from error
