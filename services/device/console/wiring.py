"""Puts together what the service does for consoles: devices and entities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litestar import Router

from libs.common.bus import Outbox, RpcClient, RpcServer
from libs.common.identity.grants import GrantReader
from libs.common.store.mongo import Mongo
from services.device.console.integrations import BuiltIn
from services.device.console.routes import ROUTER as DEVICE_ROUTES
from services.device.console.service import ConsoleDevices
from services.device.console.store import ConsoleStore
from services.device.devices.messages import CredentialsOverRpc
from services.device.devices.store import DeviceStore
from services.device.entities.directory import EntityDirectory
from services.device.entities.messages import offer_entities
from services.device.entities.models import Models
from services.device.entities.routes import ROUTER as ENTITY_ROUTES
from services.device.entities.search.service import EntitySearch
from services.device.entities.search.store import EntitySearchStore
from services.device.entities.service import EntityService
from services.device.entities.values import EntityValues
from services.device.names.messages import offer_names
from services.device.names.service import DeviceNames
from services.device.names.store import DeviceNameStore


@dataclass(frozen=True)
class Console:
    """Routes, and their collaborators by the name that handlers ask for them."""

    routes: list[Router]
    dependencies: Mapping[str, Any]


def build_console(mongo: Mongo, outbox: Outbox, client: RpcClient, rpc: RpcServer) -> Console:
    """Make the console's features; `rpc` offers what other services ask of them."""
    database = mongo.database
    grants, integrations, models = GrantReader(client), BuiltIn(), Models(database)
    directory = EntityDirectory(database, models)
    entities = EntityService(directory, grants, integrations, EntityValues(database))
    search = EntitySearch(EntitySearchStore(database), models, directory, grants, integrations)
    devices = ConsoleDevices(
        ConsoleStore(database, DeviceStore(mongo, outbox)),
        grants,
        entities,
        integrations,
        CredentialsOverRpc(client),
    )
    offer_entities(rpc, directory)
    offer_names(rpc, DeviceNames(DeviceNameStore(database), models))
    return Console(
        [DEVICE_ROUTES, ENTITY_ROUTES],
        {"console_devices": devices, "entities": entities, "entity_search": search},
    )
