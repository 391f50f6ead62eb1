"""The wiring of the records of devices, products, specifications and groups."""

from dataclasses import dataclass

from libs.common.store.ids import IdAllocator
from services.device.clients import Clients
from services.device.things.deleted_things import ThingDataStore
from services.device.things.device_store import DeviceStore
from services.device.things.directory import GrantedDevices, ThingDirectory
from services.device.things.groups import GroupStore
from services.device.things.product_store import ProductStore
from services.device.things.specifications import TslStore
from services.device.things.thing_store import ThingStore


@dataclass(frozen=True, kw_only=True)
class ThingsPackage:
    """The stores of devices, products, specifications and groups, for all packages."""

    devices: DeviceStore
    directory: ThingDirectory
    products: ProductStore
    specifications: TslStore
    thing_store: ThingStore
    groups: GroupStore
    granted_devices: GrantedDevices
    ids: IdAllocator


def wire_things(clients: Clients, *, values: ThingDataStore) -> ThingsPackage:
    """Construct the stores; `values` are deleted together with their device."""
    database = clients.mongo.database
    devices = DeviceStore(clients.mongo, clients.outbox, clients.limits, values)
    specifications = TslStore(database)
    directory = ThingDirectory(database, devices, specifications)
    return ThingsPackage(
        devices=devices,
        directory=directory,
        products=ProductStore(clients.mongo, devices, specifications, clients.limits),
        specifications=specifications,
        thing_store=directory.store,
        groups=GroupStore(database),
        granted_devices=GrantedDevices(devices, clients.grants),
        ids=IdAllocator(database, "things"),
    )
