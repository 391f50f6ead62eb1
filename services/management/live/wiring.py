"""Wiring of live updates."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from litestar import Router

from libs.common.bus import Bus, RpcClient
from libs.common.device_client import DeviceClient
from libs.common.identity.grants import GrantReader
from libs.common.jobs import run_in_background
from libs.common.limits.tenants import LimitsCache, answer_usage_requests
from libs.common.store.redis import Redis
from services.management.live.access import AdmissionControl, CredentialReader, UserAccessReader
from services.management.live.console import LiveHandlerDependencies, create_router
from services.management.live.entity_ids import EntityIds
from services.management.live.events import LiveEventConsumer
from services.management.live.hub import Hub, SocketChecker, Subscriptions
from services.management.live.mqtt_publisher import MqttPublisher
from services.management.live.sockets import SocketTurns


@dataclass(frozen=True)
class LiveComponents:
    """The router, the consumer and the checks of live updates, which the process runs."""

    router: Router
    bus: Bus
    hub: Hub
    events: LiveEventConsumer
    admission: AdmissionControl
    socket_checker: SocketChecker

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Push changes and check sockets while the block runs."""
        await answer_usage_requests(self.bus, self.admission.measure_usage)
        try:
            async with run_in_background(self.events.consumer.run(), self.socket_checker.run()):
                yield
        finally:
            await self.hub.mqtt_publisher.stop()


def wire(
    *,
    redis: Redis,
    bus: Bus,
    rpc_client: RpcClient,
    grants: GrantReader,
    limits: LimitsCache,
    devices: DeviceClient,
) -> LiveComponents:
    """Return the hub of this process with its endpoints and jobs."""
    turns = SocketTurns()
    hub = Hub(MqttPublisher(EntityIds(devices), turns))
    events = LiveEventConsumer(bus, hub)
    credentials, user_access = CredentialReader(redis), UserAccessReader(rpc_client, grants)
    admission = AdmissionControl(credentials, user_access, limits)
    subscriptions = Subscriptions(hub, devices, admission, turns)
    return LiveComponents(
        router=create_router(
            LiveHandlerDependencies(events, subscriptions, grants, turns, admission)
        ),
        bus=bus,
        hub=hub,
        events=events,
        admission=admission,
        socket_checker=SocketChecker(hub, credentials, user_access, subscriptions),
    )
