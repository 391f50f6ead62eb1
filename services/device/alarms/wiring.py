"""Wiring of the alarms package."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.bus import RpcServer
from libs.common.process import PackageParts, create_routers
from services.device.alarms.console import ALARM_ROUTER, RULE_ROUTER
from services.device.alarms.evaluator import DueStateSweep, Evaluator, build_consumer
from services.device.alarms.flow_alarms import FlowAlarms, FlowAlarmStore
from services.device.alarms.row_sources import HistoryReader, UplinkReader
from services.device.alarms.rules import AlarmRuleService, RuleStore
from services.device.alarms.service import AlarmService, AlarmValueEraser
from services.device.alarms.store import AlarmStore
from services.device.alarms.trigger import RuleAlarmTrigger, RuleIndexCache
from services.device.clients import Clients
from services.device.members.directory import EntityDirectory
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ports import AlarmTrigger
from services.device.things.wiring import ThingsPackage


@dataclass(frozen=True, kw_only=True)
class AlarmHandlerDependencies:
    """Dependencies of the HTTP handlers."""

    alarms: AlarmService
    alarm_rules: AlarmRuleService


@dataclass(frozen=True, kw_only=True)
class AlarmsPackage:
    """Interface of the alarms package."""

    store: AlarmStore
    eraser: AlarmValueEraser
    parts: PackageParts


def wire_alarms(
    clients: Clients,
    *,
    rpc: RpcServer,
    things: ThingsPackage,
    values: LatestValues,
    entities: EntityDirectory,
    uplinks: Sequence[str],
) -> AlarmsPackage:
    """Construct rules, their evaluation, alarms, and their handlers."""
    settings, mongo, bus, grants = clients.settings, clients.mongo, clients.bus, clients.grants
    devices = things.devices
    rules = RuleStore(mongo.database, clients.limits, clients.wakeups)
    store = AlarmStore(mongo, clients.outbox, devices, clients.wakeups)
    history = HistoryReader(mongo, settings.retention_days)
    uplink = UplinkReader(bus, uplinks)
    evaluator = Evaluator(rules, store, history, devices, values, uplink)
    flow_store = FlowAlarmStore(mongo, clients.outbox, devices, store.collection)
    FlowAlarms(flow_store, entities).offer(rpc)
    handlers = AlarmHandlerDependencies(
        alarms=AlarmService(store, devices, grants),
        alarm_rules=AlarmRuleService(rules, devices, things.products, grants),
    )
    return AlarmsPackage(
        store=store,
        eraser=AlarmValueEraser(store, rules),
        parts=PackageParts(
            routers=create_routers(handlers, others=[ALARM_ROUTER, RULE_ROUTER]),
            tasks=[build_consumer(bus, evaluator).run],
            jobs={"alarms": DueStateSweep(rules, store, evaluator, devices, values).run},
        ),
    )


def wire_trigger(clients: Clients, *, things: ThingsPackage) -> AlarmTrigger:
    """Construct the trigger by which ingest requests evaluations."""
    rules = RuleStore(clients.mongo.database, clients.limits, clients.wakeups)
    alarms = AlarmStore(clients.mongo, clients.outbox, things.devices, clients.wakeups)
    return RuleAlarmTrigger(RuleIndexCache(rules, alarms))
