"""Puts together what consoles and integrations do with the values of things."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litestar import Router

from libs.common.bus import RpcClient, RpcServer
from libs.common.store.ids import IdAllocator
from services.device.commands.service import CommandService
from services.device.console.wiring import Shared
from services.device.custom_entities.routes import ROUTER as CUSTOM_ROUTES
from services.device.custom_entities.service import CustomEntities
from services.device.custom_entities.store import CustomEntityStore
from services.device.entities.values import EntityValues
from services.device.entity_rpc.messages import offer_entity_values
from services.device.entity_rpc.service import EntityRpc
from services.device.entity_values.calling import EntityCaller
from services.device.entity_values.export import EntityExport
from services.device.entity_values.history import EntityHistory
from services.device.entity_values.replies import ServiceReplies
from services.device.entity_values.routes import ROUTER as VALUE_ROUTES
from services.device.entity_values.seen import SeenEntities
from services.device.entity_values.store import ValueStore
from services.device.entity_values.together import CustomWriter
from services.device.entity_values.writing import EntityWriter
from services.device.flow_services.messages import FlowCallsOverRpc, offer_flow_services
from services.device.flow_services.service import FlowServices
from services.device.flow_services.store import FlowServiceStore
from services.device.integrations.asking import IntegrationClient
from services.device.integrations.calls import IntegrationCallsOverRpc
from services.device.integrations.messages import OwnEntities, offer_tells
from services.device.integrations.reporting import Reporter
from services.device.integrations.store import IntegrationThings
from services.device.integrations.tells import IntegrationTells
from services.device.products.service import ProductService
from services.device.reports.history.partitions import DAY_MS
from services.device.reports.presence.http import HttpPresence
from services.device.things.access import Things
from services.device.things.grants import GrantsOverRpc
from services.device.wiring import Base


@dataclass(frozen=True)
class Parts:
    """What the features are made of."""

    base: Base
    shared: Shared
    client: RpcClient
    rpc: RpcServer
    things: Things
    commands: CommandService
    products: ProductService
    presence: HttpPresence


@dataclass(frozen=True)
class Values:
    """Routes, and their collaborators by the name that handlers ask for them."""

    routes: list[Router]
    dependencies: Mapping[str, Any]


def build_values(parts: Parts) -> Values:
    """Make the features, and offer on the bus what integrations tell and ask."""
    base, shared = parts.base, parts.shared
    database, ids = base.mongo.database, IdAllocator(base.mongo.database, "things")
    store = ValueStore(base.mongo)
    history = EntityHistory(shared.entities, store, base.retention, base.settings.retention_days)
    grants = GrantsOverRpc(parts.client)
    custom = CustomEntities(
        CustomEntityStore(base.mongo, base.limits), shared.entities, shared.directory, ids, grants
    )
    offer_flow_services(parts.rpc, FlowServices(FlowServiceStore(base.mongo, ids), grants))
    _offer(parts, IntegrationThings(database, ids))
    return Values(
        [VALUE_ROUTES, CUSTOM_ROUTES],
        {
            "entity_history": history,
            "entity_export": EntityExport(shared.entities, history, store, shared.integrations),
            "custom_entities": custom,
            **_writing(parts),
        },
    )


def _writing(parts: Parts) -> Mapping[str, Any]:
    base, shared = parts.base, parts.shared
    seconds = base.settings.service_call_timeout
    calls = IntegrationCallsOverRpc(IntegrationClient(parts.client), seconds)
    seen = SeenEntities(shared.directory, shared.grants, shared.own)
    writer = EntityWriter(
        entities=seen,
        devices=parts.things,
        directory=base.things,
        commands=parts.commands,
        speaker=Reporter(base.bus),
        integrations=calls,
    )
    caller = EntityCaller(
        entities=seen,
        devices=parts.things,
        directory=base.things,
        commands=parts.commands,
        replies=ServiceReplies(base.bus, base.commands, seconds),
        integrations=shared.integrations,
        calls=calls,
        flows=FlowCallsOverRpc(parts.client, seconds),
    )
    offer_entity_values(
        parts.rpc,
        EntityRpc(
            directory=shared.directory,
            values=EntityValues(base.mongo.database),
            writer=writer,
            custom=CustomWriter(base.things, Reporter(base.bus)),
            caller=caller,
        ),
    )
    return {"entity_writer": writer, "entity_caller": caller}


def _offer(parts: Parts, own: IntegrationThings) -> None:
    base, integrations = parts.base, parts.shared.integrations
    tells = IntegrationTells(
        integrations=integrations,
        own=own,
        devices=base.devices,
        directory=base.things,
        speaker=Reporter(base.bus),
        presence=parts.presence,
        catalogue=parts.products,
        latest=base.latest,
        bringer=parts.shared.bringer,
        retention_ms=base.settings.retention_days * DAY_MS,
    )
    offer_tells(parts.rpc, tells, OwnEntities(integrations, own, base.latest))
