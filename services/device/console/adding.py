"""Adds devices through their integrations, in one step or not at all (notes, section 3.7)."""

from typing import Any, Protocol

from libs.common.contracts.integrations import AddDevice, Integration, NewDevice
from libs.common.errors import (
    Forbidden,
    InvalidInput,
    NotFound,
    Unavailable,
    UpstreamFailed,
)
from libs.common.identity import Principal
from libs.common.tsl import TslDocument
from services.device.console.parameters import Parameters
from services.device.console.schemas import CreateDevice
from services.device.console.service import GrantsOf
from services.device.devices.errors import device_exists, rps_record_exists
from services.device.devices.ports import Device, Ids
from services.device.devices.records import begin
from services.device.devices.serials import SERIAL, Holder, SerialTaken, key_of
from services.device.products.schemas import Product, PutProduct

FIELD = "integration"


class Integrations(Protocol):
    """Knows the integrations."""

    async def find(self, integration: str) -> Integration | None:
        """One of them, there or silent."""


class Adders(Protocol):
    """Asks integrations to add devices."""

    async def add_device(self, integration: str, wanted: AddDevice) -> NewDevice:
        """Let an integration make ready for a device, and say what it is."""


class Devices(Protocol):
    """What is needed of the store of devices."""

    async def with_serial(self, key: str) -> tuple[Holder | None, Device | None]:
        """What holds an SN, and the device when it is one."""

    async def insert(self, device: Device) -> None:
        """Write a new device; raises `SerialTaken`."""

    async def change(self, tenant: str, device_id: int, changes: dict[str, Any]) -> Device | None:
        """Change fields of a device."""


class Products(Protocol):
    """What is needed of products."""

    async def choose(self, tenant: str, model: str | None, serial: str) -> Product:
        """The product of a new device."""

    async def has(self, tenant: str, model: str) -> bool:
        """Whether the tenant has a product."""

    async def put(self, principal: Principal, model: str, body: PutProduct) -> Product:
        """Create a product."""


class Tsls(Protocol):
    """Reads the TSLs of integrations."""

    def __call__(self, integration: Integration) -> TslDocument:
        """The TSL of one."""


class DeviceAdder:
    """Adds devices on behalf of users."""

    def __init__(
        self,
        *,
        integrations: Integrations,
        tsl_of: Tsls,
        adders: Adders,
        devices: Devices,
        ids: Ids,
        products: Products,
        grants: GrantsOf,
    ) -> None:
        self._integrations = integrations
        self._tsl_of = tsl_of
        self._adders = adders
        self._devices = devices
        self._ids = ids
        self._products = products
        self._grants = grants

    async def add(self, principal: Principal, body: CreateDevice) -> None:
        """Let the integration make ready, then write the device; adding again updates it.

        Nothing is written when the integration refuses, is late, or breaks off. Raises
        `Forbidden` without a grant of the integration, `NotFound` for one that there never
        was, `Unavailable` for one that is away.
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
        parameters = Parameters(found.manifest, self._tsl_of(found), service)
        wanted = AddDevice(
            tenant=principal.tenant,
            user_id=principal.user_id,
            name=body.name,
            params=parameters.read(body.param_entities),
        )
        new = await self._ask(body.integration, wanted, parameters)
        await self._write(principal, body, new, parameters)

    async def _ask(self, integration: str, wanted: AddDevice, parameters: Parameters) -> NewDevice:
        try:
            new = await self._adders.add_device(integration, wanted)
        except InvalidInput as error:  # its text begins with the input at fault
            name = error.message.partition(":")[0]
            if not parameters.has(name):
                raise
            raise InvalidInput(error.message, field=parameters.key(name)) from error
        if not SERIAL.fullmatch(new.identifier):
            raise UpstreamFailed(
                f"integration {integration} named a device {new.identifier!r}: an identifier has"
                " 1 to 64 letters, digits, '_' or '-'"
            )
        return new

    async def _write(
        self, principal: Principal, body: CreateDevice, new: NewDevice, parameters: Parameters
    ) -> None:
        key = key_of(new.identifier)
        holder, known = await self._devices.with_serial(key)
        if holder is None:
            product = await self._product(principal, new, parameters)
            device = begin(await self._ids.take(), new.identifier, principal.tenant, product)
            try:
                await self._devices.insert(device | _given(principal, body, new))
            except SerialTaken:
                holder, known = await self._devices.with_serial(key)
            else:
                return
        if known is None:
            raise rps_record_exists(new.identifier, FIELD)
        if (known["tenant"], known["integration"]) != (principal.tenant, body.integration):
            raise device_exists(new.identifier, FIELD)
        changes = {"name": body.name, "additional": new.additional}
        await self._devices.change(principal.tenant, known["_id"], changes)

    async def _product(
        self, principal: Principal, new: NewDevice, parameters: Parameters
    ) -> Product:
        """The product of the device; one that the tenant lacks is made when there is a TSL."""
        model = new.model or None
        known = model is None or await self._products.has(principal.tenant, model)
        if model is not None and not known and new.tsl is not None:
            try:
                return await self._products.put(
                    principal, model, PutProduct(name=model, tsl=new.tsl)
                )
            except InvalidInput as error:
                raise UpstreamFailed(f"the integration's product: {error.text}") from error
        try:
            return await self._products.choose(principal.tenant, model, key_of(new.identifier))
        except InvalidInput as error:
            if not parameters.has("model"):
                raise UpstreamFailed(f"the integration's device: {error.text}") from error
            raise InvalidInput(error.message, field=parameters.key("model")) from error


def _given(principal: Principal, body: CreateDevice, new: NewDevice) -> dict[str, Any]:
    """What a device has that no application added."""
    return {
        "name": body.name,
        "description": "",
        "project": "",
        "tag": [],
        "rpsStatus": "DISABLE",
        "application": None,
        "integration": body.integration,
        "identifier": new.identifier,
        "userId": principal.user_id,
        "additional": new.additional,
    }
