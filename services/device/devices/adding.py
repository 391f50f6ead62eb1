"""Adds devices through their integrations, in one step or not at all."""

from libs.common.contracts.integrations import AddDevice, NewDevice
from libs.common.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Unavailable,
    UpstreamFailed,
)
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from services.device.devices.bringing import FIELD, Brought, DeviceBringer
from services.device.devices.parameters import Parameters
from services.device.devices.places import location_of
from services.device.devices.schemas import CreateDevice, SentLocation
from services.device.groups.store import GroupStore
from services.device.things.integrations import IntegrationClient, Integrations, tsl_of


class DeviceAdder:
    """Adds devices on behalf of users."""

    def __init__(
        self,
        *,
        integrations: Integrations,
        client: IntegrationClient,
        bringer: DeviceBringer,
        grants: GrantReader,
        groups: GroupStore,
    ) -> None:
        self._integrations = integrations
        self._client = client
        self._bringer = bringer
        self._grants = grants
        self._groups = groups

    async def add(self, principal: Principal, body: CreateDevice) -> None:
        """Let the integration make ready, then write the device.

        Nothing is written when the integration refuses, is late, or breaks off. Raises
        `Conflict` for a device that there is already, `Forbidden` without a grant of the
        integration, `NotFound` for one that there never was, `Unavailable` for one that is away.
        """
        if not (await self._grants.of(principal)).integration(body.integration):
            raise Forbidden("user does not have data permission", field=FIELD)
        found = await self._integrations.find(body.integration)
        if found is None:
            raise NotFound(f"integration {body.integration} not found!", field=FIELD)
        service = found.manifest.add_device_service
        if service is None:
            raise InvalidInput(f"integration {body.integration} cannot add device!", field=FIELD)
        if not found.alive:
            raise Unavailable(f"integration {body.integration} is not there at the moment")
        location = location_of(body.location or SentLocation(), "location.")
        group_name = (body.group_name or "").strip()
        if group_name:
            await self._groups.check_room(principal.tenant, group_name)
        parameters = Parameters(found.manifest, tsl_of(found.manifest), service)
        wanted = AddDevice(
            tenant=principal.tenant,
            user_id=principal.user_id,
            name=body.name,
            params=parameters.read(body.param_entities),
        )
        new = await self._ask(body.integration, wanted, parameters)
        brought = Brought(
            tenant=principal.tenant,
            integration=body.integration,
            name=body.name,
            user_id=principal.user_id,
            new=new,
            group=await self._groups.of_name(principal.tenant, group_name) if group_name else None,
            location=location,
        )
        try:
            await self._bringer.add(brought)
        except InvalidInput as error:
            if not parameters.has("model"):
                raise UpstreamFailed(f"the integration's device: {error.text}") from error
            raise InvalidInput(error.message, field=parameters.key("model")) from error
        except Conflict as error:
            for name, value in wanted.params.items():
                if value == new.identifier:
                    text = error.message.removeprefix(f"{FIELD}: ")
                    raise Conflict(text, field=parameters.key(name), code=error.code) from error
            raise

    async def _ask(self, integration: str, wanted: AddDevice, parameters: Parameters) -> NewDevice:
        try:
            return await self._client.add_device(integration, wanted)
        except InvalidInput as error:  # its text begins with the input at fault
            name = error.message.partition(":")[0]
            if not parameters.has(name):
                raise
            raise InvalidInput(error.message, field=parameters.key(name)) from error
