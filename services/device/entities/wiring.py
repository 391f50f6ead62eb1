"""Wiring of the entities package."""

from dataclasses import dataclass

from libs.common.bus import RpcServer
from libs.common.identity.grants import GrantsClient
from libs.common.process import PackageParts, create_routers
from services.device.alarms.wiring import AlarmsPackage
from services.device.clients import Clients
from services.device.commands.wiring import CommandsPackage
from services.device.entities.console import ROUTER as ENTITIES
from services.device.entities.console import TAG_ROUTER as TAGS
from services.device.entities.custom_entities import CustomEntities, CustomEntityStore
from services.device.entities.history import EntityExport, EntityHistory
from services.device.entities.history_store import ValueStore
from services.device.entities.property_updates import EntityWriter
from services.device.entities.rpc import EntityRpc
from services.device.entities.search import EntitySearch
from services.device.entities.service import EntityService, ValueReader
from services.device.entities.service_calls import EntityCaller
from services.device.entities.tags import EntityTags, TagStore
from services.device.members.wiring import MembersPackage
from services.device.telemetry.wiring import TelemetryPackage
from services.device.things.thing_store import EntityNames
from services.device.things.wiring import ThingsPackage


@dataclass(frozen=True, kw_only=True)
class EntityHandlerDependencies:
    """Dependencies of the HTTP handlers."""

    entities: EntityService
    entity_search: EntitySearch
    entity_history: EntityHistory
    entity_export: EntityExport
    entity_writer: EntityWriter
    entity_caller: EntityCaller
    custom_entities: CustomEntities
    entity_tags: EntityTags


def wire_entities(
    clients: Clients,
    *,
    rpc: RpcServer,
    things: ThingsPackage,
    members: MembersPackage,
    telemetry: TelemetryPackage,
    commands: CommandsPackage,
    alarms: AlarmsPackage,
) -> PackageParts:
    """Construct operations on entities and their handlers."""
    settings, mongo = clients.settings, clients.mongo
    devices, thing_store, directory = things.devices, things.thing_store, members.directory
    values = ValueReader(
        telemetry.values, devices, alarms.store, telemetry.events, telemetry.retention
    )
    service = EntityService(
        directory=directory,
        grants=clients.grants,
        integrations=clients.integrations,
        integration_things=members.integration_things,
        values=values,
        names={
            True: devices.entity_names,
            False: EntityNames(mongo, thing_store.collection),
        },
    )
    writer = EntityWriter(
        entities=service,
        commands=commands.service,
        reporter=telemetry.reporter,
        integrations=clients.integration_client,
    )
    caller = EntityCaller(
        entities=service,
        commands=commands.service,
        bus=clients.bus,
        store=commands.store,
        integrations=clients.integrations,
        client=clients.integration_client,
        rpc=clients.rpc,
        seconds=settings.service_call_timeout,
    )
    tag_store = TagStore(mongo)
    tags = EntityTags(tag_store, service)
    custom_store = CustomEntityStore(
        mongo, thing_store, telemetry.values, clients.limits, things.ids
    )
    custom = CustomEntities(custom_store, service, directory, GrantsClient(clients.rpc), tag_store)
    store = ValueStore(mongo)
    history = EntityHistory(service, store, telemetry.retention, settings.retention_days)
    EntityRpc(
        directory=directory,
        integration_things=members.integration_things,
        values=values,
        writer=writer,
        caller=caller,
        custom=custom,
    ).offer(rpc)
    handlers = EntityHandlerDependencies(
        entities=service,
        entity_search=EntitySearch(
            devices.queries,
            members.member_sets,
            directory,
            clients.grants,
            clients.integrations,
            members.integration_things,
            things.groups,
            tags,
            values,
            members.first_keys,
        ),
        entity_history=history,
        entity_export=EntityExport(service, history, store, clients.integrations),
        entity_writer=writer,
        entity_caller=caller,
        custom_entities=custom,
        entity_tags=tags,
    )
    return PackageParts(routers=create_routers(handlers, others=[ENTITIES, TAGS]))
