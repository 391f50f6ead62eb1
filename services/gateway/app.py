"""The wiring of the gateway."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import ClientSession, DummyCookieJar
from litestar import Litestar

from libs.common.identity import HeaderSigner
from libs.common.identity.access import AccessReader
from libs.common.identity.device_keys import DeviceKeyReader
from libs.common.identity.tokens import CoalescingTokenReader, TokenReader
from libs.common.store.redis import Redis, check_redis, connect_redis
from libs.common.telemetry import Telemetry
from services.gateway.access.addresses import TrustedProxies
from services.gateway.access.gatekeeper import Gatekeeper, Limits
from services.gateway.docs.catalogue import Catalogue
from services.gateway.door import Door
from services.gateway.limits import RateLimiter
from services.gateway.metrics import Metrics
from services.gateway.pages.app import Pages, create_pages
from services.gateway.pages.readiness import Readiness, service_check
from services.gateway.proxy.forward import Forwarder
from services.gateway.routes import RouteTable
from services.gateway.rpc import PatientRpcClient
from services.gateway.settings import GatewaySettings, parse_upstreams
from services.gateway.tracing import Tracing
from services.gateway.tunnel.tunnels import Tunnels
from services.gateway.upstream.service import Upstream


async def create_gateway(settings: GatewaySettings, telemetry: Telemetry) -> Door:
    """Build the gateway; its lifespan closes what is opened here."""
    addresses = parse_upstreams(settings.upstreams)
    proxies = TrustedProxies(settings.trusted_proxies)
    routes = RouteTable(upstreams=addresses)
    metrics = Metrics()
    redis = connect_redis(settings.redis_url)
    rpc = PatientRpcClient(settings)
    session = ClientSession(cookie_jar=DummyCookieJar())
    upstreams = {
        name: Upstream(
            name,
            base,
            metrics,
            connect_timeout=settings.connect_timeout,
            most=settings.upstream_requests,
        )
        for name, base in addresses.items()
    }

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(redis.aclose)
            stack.push_async_callback(session.close)
            for upstream in upstreams.values():
                stack.callback(upstream.close)
            stack.push_async_callback(rpc.close)
            rpc.start()
            yield

    checks = {"redis": partial(check_redis, redis)} | {
        name: service_check(session, base) for name, base in addresses.items()
    }
    gatekeeper = Gatekeeper(
        CoalescingTokenReader(TokenReader(redis)),
        DeviceKeyReader(redis, rpc),
        AccessReader(rpc),
        _limits(redis, settings),
    )
    signer = HeaderSigner(settings.internal_private_key)
    return Door(
        routes=routes,
        gatekeeper=gatekeeper,
        forwarder=Forwarder(upstreams, signer, settings.request_timeout),
        tunnels=Tunnels(
            gatekeeper,
            signer,
            proxies,
            addresses.get("management"),
            most=settings.websockets,
            connect_timeout=settings.connect_timeout,
        ),
        proxies=proxies,
        pages=create_pages(
            Pages(
                readiness=Readiness(checks),
                catalogue=Catalogue(session, addresses, routes.routes),
                telemetry=telemetry,
                lifespan=lifespan,
            )
        ),
        metrics=metrics,
        tracing=Tracing(on=telemetry.tracing is not None),
        max_body=settings.max_body,
        max_header=settings.max_header,
    )


def _limits(redis: Redis, settings: GatewaySettings) -> Limits:
    return Limits(
        principal=RateLimiter(
            redis, "principal", rate=settings.principal_rate, burst=settings.principal_burst
        ),
        address=RateLimiter(
            redis, "address", rate=settings.address_rate, burst=settings.address_burst
        ),
        sign_in=RateLimiter(redis, "sign-in", rate=settings.token_rate, burst=settings.token_burst),
    )
