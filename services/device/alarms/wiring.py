"""The wiring of alarms."""

from dataclasses import dataclass

from libs.common.bus import RpcServer
from libs.common.process import Parts, provided_routers
from services.device.alarms.console import ROUTERS
from services.device.alarms.evaluator import Evaluator, Sweep, listen
from services.device.alarms.flow_alarms import FlowAlarms, FlowAlarmStore
from services.device.alarms.row_sources import History, UplinkReader
from services.device.alarms.rules import AlarmRules, RuleStore
from services.device.alarms.service import AlarmEraser, Alarms
from services.device.alarms.store import AlarmStore
from services.device.alarms.trigger import FollowedRules, RuleAlarmTrigger
from services.device.members.directory import EntityDirectory
from services.device.settings import Clients
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ports import AlarmTrigger
from services.device.things.wiring import ThingsPackage


@dataclass(frozen=True, kw_only=True)
class AlarmHandlers:
    """Dependencies of the HTTP handlers."""

    alarms: Alarms
    alarm_rules: AlarmRules


@dataclass(frozen=True, kw_only=True)
class AlarmsPackage:
    """Alarms of devices."""

    store: AlarmStore
    eraser: AlarmEraser
    parts: Parts


def wire_alarms(
    clients: Clients,
    *,
    rpc: RpcServer,
    things: ThingsPackage,
    values: LatestValues,
    entities: EntityDirectory,
) -> AlarmsPackage:
    """Construct rules, their evaluation and the alarms that they raise."""
    settings, mongo, bus, grants = clients.settings, clients.mongo, clients.bus, clients.grants
    devices = things.devices
    rules = RuleStore(mongo.database, clients.limits)
    store = AlarmStore(mongo, clients.outbox, devices)
    history = History(mongo, settings.retention_days)
    uplink = UplinkReader(bus, settings.uplink_partitions)
    evaluator = Evaluator(rules, store, history, devices, values, uplink)
    flow_store = FlowAlarmStore(mongo, clients.outbox, devices, store.collection)
    FlowAlarms(flow_store, entities).offer(rpc)
    handlers = AlarmHandlers(
        alarms=Alarms(store, devices, grants),
        alarm_rules=AlarmRules(rules, devices, things.products, grants),
    )
    return AlarmsPackage(
        store=store,
        eraser=AlarmEraser(store, rules),
        parts=Parts(
            routers=provided_routers(handlers, others=ROUTERS),
            tasks=[listen(bus, evaluator).run],
            jobs={"alarms": Sweep(rules, store, evaluator, devices, values).run},
        ),
    )


def wire_trigger(clients: Clients, *, things: ThingsPackage) -> AlarmTrigger:
    """Construct what tells `device` that values of rules have changed."""
    rules = RuleStore(clients.mongo.database, clients.limits)
    alarms = AlarmStore(clients.mongo, clients.outbox, things.devices)
    return RuleAlarmTrigger(FollowedRules(rules, alarms))
