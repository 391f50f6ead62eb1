"""Entry point of `gateway-bus`: `python -m services.gateway.relay_main`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from libs.common.bus import Bus, RpcClient
from libs.common.http import ServiceDescription, create_app, run_service, serve
from libs.common.http.app import ReadinessCheck
from libs.common.identity import HeaderVerifier
from libs.common.identity.users import UserTenants
from libs.common.jobs import run_in_background
from libs.common.limits.meter import FloodGuard, MessageMeter
from libs.common.limits.tenants import LimitsCache
from libs.common.settings import load_settings
from libs.common.store.redis import connect_redis
from libs.common.telemetry import Telemetry, start_telemetry
from services.gateway.relay.service import MessageRelay, RelayQuota
from services.gateway.settings import RelaySettings


async def main() -> None:
    """Relay messages until SIGTERM, and serve probes and metrics."""
    settings = load_settings(RelaySettings)
    telemetry = start_telemetry("gateway-bus", settings.replicas)
    redis = connect_redis(settings.redis_url)
    async with AsyncExitStack() as stack:
        stack.callback(telemetry.shutdown)
        stack.push_async_callback(redis.aclose)
        connect = partial(
            Bus.connect, settings.nats_url, name="gateway-bus", ca_file=settings.ca_file
        )
        inside = await connect(user=settings.nats_user, password=settings.nats_password)
        stack.push_async_callback(inside.drain)
        rpc = RpcClient(inside)
        quota = RelayQuota(MessageMeter(LimitsCache(rpc)), UserTenants(redis), FloodGuard(rpc))
        outside = await connect(
            user=settings.outside_nats_user,
            password=settings.outside_nats_password,
            drops=quota.count_drop_if_blocked,
        )
        stack.push_async_callback(outside.drain)
        relay = MessageRelay(outside, quota)
        checks = {"nats": inside.check, "nats-outside": outside.check}
        await serve(create_app(_create_service(settings, relay, checks, telemetry)), settings)


def _create_service(
    settings: RelaySettings,
    relay: MessageRelay,
    checks: Mapping[str, ReadinessCheck],
    telemetry: Telemetry,
) -> ServiceDescription:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with run_in_background(relay.relay_forever()):
            await relay.start()
            yield
            await relay.stop()

    return ServiceDescription(
        name="gateway-bus",
        title="Thingway relay",
        routes=[],
        verifier=HeaderVerifier(settings.internal_public_key),
        telemetry=telemetry,
        checks=checks,
        lifespan=lifespan,
    )


if __name__ == "__main__":
    run_service("gateway-bus", main)
