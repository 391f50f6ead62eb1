"""Puts together what the service does for consoles: devices and entities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litestar import Router

from libs.common.bus import RpcClient, RpcServer
from libs.common.identity.grants import GrantReader
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Mongo
from services.device.devices.adding import DeviceAdder
from services.device.devices.bringing import DeviceBringer
from services.device.devices.console import ROUTER as DEVICE_ROUTES
from services.device.devices.keys import CredentialsOverRpc
from services.device.devices.rpc import DeviceNames
from services.device.devices.users import UserDevices
from services.device.entities.directory import EntityDirectory
from services.device.entities.messages import offer_entities
from services.device.entities.models import Models
from services.device.entities.routes import ROUTER as ENTITY_ROUTES
from services.device.entities.search.service import EntitySearch
from services.device.entities.search.store import EntitySearchStore
from services.device.entities.service import EntityService
from services.device.entities.values import EntityValues
from services.device.integrations.asking import IntegrationClient
from services.device.integrations.calls import DEVICE_SECONDS, IntegrationCallsOverRpc
from services.device.integrations.completing import OwnThingsOfAll
from services.device.integrations.known import IntegrationsOverRpc
from services.device.integrations.store import IntegrationThings
from services.device.products.service import ProductService
from services.device.things.grants import GrantsOverRpc
from services.device.things.store import DeviceStore


@dataclass(frozen=True)
class Shared:
    """What other features of the console use too; each keeps something in memory."""

    directory: EntityDirectory
    entities: EntityService
    grants: GrantReader
    integrations: IntegrationsOverRpc
    bringer: DeviceBringer
    own: OwnThingsOfAll


@dataclass(frozen=True)
class Console:
    """Routes, and their collaborators by the name that handlers ask for them."""

    routes: list[Router]
    dependencies: Mapping[str, Any]
    shared: Shared


def build_console(
    mongo: Mongo, store: DeviceStore, products: ProductService, client: RpcClient, rpc: RpcServer
) -> Console:
    """Make the console's features; `rpc` offers what other services ask of them."""
    database = mongo.database
    grants, integrations = GrantReader(client), IntegrationsOverRpc(client)
    models = Models(database)
    directory = EntityDirectory(database, store, models)
    entities = EntityService(directory, grants, integrations, EntityValues(database))
    ids = IdAllocator(database, "things")
    own = OwnThingsOfAll(integrations, IntegrationThings(database, ids))
    search = EntitySearch(
        EntitySearchStore(database, store), models, directory, grants, integrations, own
    )
    calls = IntegrationCallsOverRpc(IntegrationClient(client), DEVICE_SECONDS)
    bringer = DeviceBringer(store, ids, products)
    adder = DeviceAdder(integrations=integrations, calls=calls, bringer=bringer, grants=grants)
    devices = UserDevices(
        store=store,
        grants=grants,
        entities=entities,
        integrations=integrations,
        calls=calls,
        credentials=CredentialsOverRpc(client),
        forgetting=GrantsOverRpc(client),
    )
    offer_entities(rpc, directory)
    DeviceNames(store, models).offer(rpc)
    return Console(
        [DEVICE_ROUTES, ENTITY_ROUTES],
        {
            "user_devices": devices,
            "device_adder": adder,
            "entities": entities,
            "entity_search": search,
        },
        Shared(directory, entities, grants, integrations, bringer, own),
    )
