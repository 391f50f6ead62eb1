"""Every queue, pool, consumer and endless loop of the services is scheduled fairly, or listed.

Tenants share a process. Whatever can make one wait for another has lanes (`libs.common.scheduling`)
or a reason in `REASONS`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PRIMITIVES = {
    *("Semaphore", "BoundedSemaphore", "Lock", "Condition", "deque", "NamedTasks", "repeat"),
    *("Queue", "PriorityQueue", "LifoQueue", "SimpleQueue"),
    *("ThreadPoolExecutor", "ProcessPoolExecutor", "run_in_executor", "to_thread"),
}
"""Classes and functions that let others wait, or that run what nobody waits for."""
OURS = ("libs/common/scheduling/",)
"""The scheduler itself."""
ENDLESS = "endless loop"
NETWORK = "services/management/networks/tenant_connection.py"
CLIENT = "services/management/builtin/openapi_client"
SIMULATOR = "services/management/builtin/simulator.py"

REASONS: dict[str, list[str]] = {
    "The platform's own work or a measurement; no tenant can make it longer, none waits for it.": [
        "services/device/commands/store.py CommandStore.__init__: NamedTasks",
        "libs/common/bus/consumer.py BatchConsumer._run: endless loop",
        "libs/common/bus/consumer.py BatchConsumer._run_streams: endless loop",
        "libs/common/bus/consumer.py BatchConsumer._measure_backlogs: endless loop",
        "libs/common/bus/wakeups.py Wakeups.publish_forever: endless loop",
        "libs/common/bus/wakeups.py Wakeups.run: subscription",
        "libs/common/store_metrics.py StreamMetrics.run: repeat",
        "libs/common/store_metrics.py measure_event_readers: repeat",
        "libs/common/store_metrics.py measure_disk: repeat",
        "libs/common/store_metrics.py measure_jetstream: repeat",
        "libs/common/store_metrics.py _read_jetstream: endless loop",
        "libs/common/store_metrics.py measure_redis: repeat",
        "services/device/telemetry/backup_metrics.py BackupMetrics.run: repeat",
        "services/device/telemetry/ledger.py UplinkMetrics.run: repeat",
        "services/workflow/engine/recovery.py ReplicaRegistry.keep_renewing: repeat",
        "libs/common/http/app.py _operations.metrics: to_thread",
        "libs/common/integrations/host.py IntegrationHost._keep_announcing: endless loop",
        "libs/common/store/lease.py Leader.run: endless loop",
        "libs/common/store/migrations.py _renew: endless loop",
        "libs/common/tls.py ServerTls.reload_forever: endless loop",
        "services/gateway/docs/catalogue.py DocumentCache.__init__: Lock",
        "services/gateway/pages.py _create_probe_handlers.metrics: to_thread",
        "services/gateway/pages.py ReadinessCache.__init__: Lock",
        "services/workflow/sandbox/python.py PythonRunner.__aexit__: to_thread",
    ],
    "It only lists or takes what then has turns of tenants (`FairScheduler`, `FairQueue`).": [
        "libs/common/bus/consumer.py BatchConsumer._consume: endless loop",
        "libs/common/identity/device_keys.py RejectedLogins.run: endless loop",
        "libs/common/limits/tenants.py answer_usage_requests: subscription",
        "services/auth/callout/service.py Callout.start: subscription",
        "services/auth/passwords.py PasswordHasherPool.__init__: ThreadPoolExecutor",
        "services/auth/passwords.py PasswordHasherPool._run_in_thread: run_in_executor",
        "services/auth/login_records.py RejectedLoginRecorder.record_forever: endless loop",
        "services/device/registry/imports/sheets.py SheetService._export: to_thread",
        "services/device/registry/imports/sheets.py SheetService.write_in_slot: to_thread",
        "services/device/registry/products/templates.py TemplateService.replace_library: to_thread",
        "services/device/telemetry/presence_store.py HttpPresence.__init__: NamedTasks",
        "services/device/telemetry/quota.py SlowCodecQueue.run: endless loop",
        "services/gateway/relay/service.py MessageRelay.relay_forever: endless loop",
        "services/gateway/relay/service.py MessageRelay.start: subscription",
        f"{CLIENT}/commands.py CommandForwarder.__init__: NamedTasks",
        f"{CLIENT}/integration.py OpenApiClient.__init__: NamedTasks",
        f"{CLIENT}/integration.py OpenApiClient.run: endless loop",
        f"{SIMULATOR} Simulator.run: endless loop",
        "services/workflow/batches.py WriteBatcher._pop_batch: deque",
        "services/workflow/batches.py WriteBatcher._enqueue: deque",
        "services/workflow/notifications/sender.py NotificationSender.run: repeat",
        "services/workflow/sandbox/python.py PythonRunner.__init__: Lock",
        "services/workflow/sandbox/python.py PythonRunner.__init__: ThreadPoolExecutor",
        "services/workflow/sandbox/python.py PythonRunner.run: run_in_executor",
        "services/workflow/triggers/timers.py TimerRunner.run: endless loop",
        "services/workflow/triggers/topics.py TopicListener.run: subscription",
        "services/workflow/nodes/wiring.py ExternalClients.open: ThreadPoolExecutor",
    ],
    "Ingest writes one transaction per batch of all tenants; slow codecs have lanes (`slow.py`).": [
        "libs/common/bus/consumer.py _OverlappingBatches.__init__: Semaphore",
        "services/device/telemetry/wiring.py wire_ingest: BatchConsumer without lanes",
        "services/device/members/shapes.py ShapeUpdater.__init__: Lock",
    ],
    "The callback notes or wakes something without waiting.": [
        "libs/common/bus/client.py MessageInbox.__aenter__: subscription",
        "libs/common/bus/publishing.py Publisher._listen: subscription",
        "services/device/commands/polling.py CommandPolls.start: subscription",
        "services/device/registry/devices/ownership.py OrphanCleaner.run: subscription",
        "services/device/entities/service_calls.py ServiceReplies.subscribe: subscription",
        "services/device/telemetry/reporter.py StorageWaiter.__aenter__: subscription",
        "services/device/telemetry/presence_watch.py PresenceWatch.run: subscription",
        "services/device/things/directory.py ThingDirectory.watch: subscription",
        "services/management/builtin/simulator.py subscribe_to_device_changes: subscription",
    ],
    "One read that all wait for alike: it is for all tenants, and bounded in time.": [
        "libs/common/store/ids.py IdAllocator.__init__: Lock",
        "services/device/alarms/trigger.py RuleIndexCache.__init__: Lock",
        "libs/common/integrations/client.py Integrations.__init__: Lock",
        f"{SIMULATOR} Simulator._list_periodically: endless loop",
        "services/workflow/triggers/deployed_flows.py DeployedFlowIndex._follow: endless loop",
        "services/workflow/triggers/deployed_flows.py DeployedFlowIndex.run: endless loop",
    ],
    "It belongs to one tenant, device, account, connection or answer.": [
        "libs/common/limits/quota.py Quota._count: Lock",
        "services/device/commands/store.py CommandStore.insert_with_locked_things: Lock",
        "services/device/registry/products/templates.py TemplateService._tenant_lock: Lock",
        "services/gateway/upstream/connection.py ServiceAnswer.__init__: deque",
        "services/gateway/upstream/connection.py ServiceAnswer.receive_part: deque",
        "services/management/networks/broker.py BrokerConnection.__init__: deque",
        "services/management/networks/broker.py BrokerConnection.receive_batches: endless loop",
        "services/management/networks/broker.py BrokerConnection.send_pings: endless loop",
        f"{NETWORK} TenantConnection.__init__: Lock",
        f"{NETWORK} TenantConnection._report_state_forever: endless loop",
        f"{NETWORK} TenantConnection._reconnect_forever: endless loop",
        f"{CLIENT}/remote.py RemotePlatform.__init__: Lock",
        "services/management/live/frames.py ChangeQueue.__init__: deque",
        "services/management/live/mqtt_publisher.py MqttListener.__init__: deque",
        "services/management/live/subscriber.py Subscriber.__init__: deque",
    ],
    "A task for each tenant, user or search: none waits for another.": [
        "libs/common/limits/meter.py FloodGuard.__init__: NamedTasks",
        "services/auth/callout/admission_registry.py AdmissionRegistry.__init__: NamedTasks",
        "services/auth/callout/service.py Callout.__init__: NamedTasks",
        "services/device/things/device_search.py CachedCounter.__init__: NamedTasks",
        "services/management/live/mqtt_publisher.py MqttPublisher.__init__: NamedTasks",
    ],
    "The request holds a worker of its tenant meanwhile (`libs.common.http.middleware`).": [
        "services/device/registry/products/templates.py TemplateService._create_product: to_thread",
        "services/device/registry/products/templates.py TemplateService._import: to_thread",
    ],
    "Connections that nobody uses at the moment; who finds none opens one.": [
        "services/gateway/upstream/service.py ConnectionPool.__init__: deque",
    ],
    "It removes or repeats what nobody waits for, in an order that is the same for all.": [
        "services/auth/grants/deleted_resources.py GrantSweep.run: repeat",
        "services/auth/accounts/tenants.py TenantStore.copy_recent_versions_forever: repeat",
        "services/auth/applications/event_consumers.py AbandonedConsumerSweep.run: repeat",
        "services/auth/applications/event_partitions.py EventStreamUpdater.run: repeat",
        "services/auth/tenants/event_shares.py EventShareEnforcer.run: repeat",
        "services/device/members/shapes.py ShapeStore.sweep: repeat",
        "services/device/telemetry/retention.py RetentionSweeper.run: repeat",
        "services/workflow/app.py lifespan: repeat",
    ],
    "Log-ins have lanes; nats-server tells of connections without tenants, written together.": [
        "services/device/telemetry/system_account.py SystemAccount.servers: endless loop",
        "services/device/telemetry/presence_watch.py PresenceWatch.__init__: Lock",
        "services/device/telemetry/presence_watch.py PresenceWatch._reset: deque",
        "services/device/telemetry/presence_watch.py PresenceWatch._repeat: endless loop",
    ],
    "All sockets are looked at together, and each tenant's are judged in a task of its own.": [
        "services/management/live/hub.py SocketChecker.run: repeat",
    ],
}
"""Why what has no lanes cannot let one tenant wait for another."""


def _name(node: ast.expr) -> str:
    """Return the last part of the name of what is called or inherited."""
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Return what is inside a statement, without functions that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own(child)


def _kind(node: ast.AST) -> str:
    """Return what a statement or expression is that may let others wait; empty for all else."""
    if isinstance(node, ast.ClassDef):
        return next((name for base in node.bases if (name := _name(base)) in PRIMITIVES), "")
    if isinstance(node, ast.While) and getattr(node.test, "value", None) is True:
        inside = list(_own(node))
        ends = any(isinstance(one, ast.Return | ast.Break) for one in inside)
        waits = any(isinstance(one, ast.Await | ast.AsyncFor | ast.AsyncWith) for one in inside)
        return ENDLESS if waits and not ends else ""
    if not isinstance(node, ast.Call):
        return ""
    name, given = _name(node.func), {one.arg for one in node.keywords}
    if name == "BatchConsumer" and "lane" not in given:
        return "BatchConsumer without lanes"
    if name == "subscribe" and "cb" in given:
        return "subscription"
    return name if name in PRIMITIVES else ""


def places_of(source: str) -> Iterator[str]:
    """Return what may let others wait: the class or function that has it, and what it is."""

    def visit(node: ast.AST, owner: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            inner = f"{owner}.{child.name}".lstrip(".") if named else owner
            if kind := _kind(child):
                yield f"{inner}: {kind}"
            yield from visit(child, inner)

    yield from visit(ast.parse(source), "")


def all_places() -> set[str]:
    """Return those of all processes of the platform."""
    found = set()
    for folder in ("libs", "services"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if not file.startswith(OURS):
                found |= {f"{file} {place}" for place in places_of(path.read_text())}
    return found


def test_every_queue_has_lanes_or_a_reason():
    """New ones use `FairScheduler`, `FairQueue` or `take_turns`, or state a reason."""
    listed, found = [place for places in REASONS.values() for place in places], all_places()
    assert sorted(found - set(listed)) == []
    assert sorted(set(listed) - found) == [], "this is gone: remove it from the list"
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("class A:\n def b(self):\n  self.c = asyncio.Semaphore(1)", ["A.b: Semaphore"]),
        ("x: Queue[int] = Queue[int](5)", [": Queue"]),
        ("class A(asyncio.Queue[int]): pass", ["A: Queue"]),
        ("BatchConsumer(handle=f)", [": BatchConsumer without lanes"]),
        ("BatchConsumer(handle=f, lane=g)", []),
        ("bus.subscribe('a', cb=f)", [": subscription"]),
        ("async def a():\n while True:\n  await b()", [f"a: {ENDLESS}"]),
        ("async def a():\n while True:\n  if await b():\n   return", []),
    ],
)
def test_the_check_finds_blocking_constructs(source: str, places: list[str]):
    """It finds them at every place in a module."""
    assert list(places_of(source)) == places
