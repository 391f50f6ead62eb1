"""The wiring of the gateway."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import ClientSession, DummyCookieJar, TCPConnector
from litestar import Litestar

from libs.common.bus import Bus
from libs.common.http.server import get_open_files_limit
from libs.common.identity import HeaderSigner
from libs.common.identity.access import AccessReader
from libs.common.identity.device_keys import DeviceKeyReader, RejectedLogins
from libs.common.identity.header import CertificatePassSigner
from libs.common.identity.tokens import TokenReader
from libs.common.jobs import run_in_background
from libs.common.limits.tenants import LimitsCache, answer_usage_requests
from libs.common.store.redis import Redis, check_redis, connect_redis
from libs.common.telemetry import Telemetry
from libs.common.tls import ServerTls, client_context, client_context_for, parse_mqtt_urls
from services.gateway.access.addresses import TrustedProxies
from services.gateway.access.cross_origin import AllowedOrigins, build_security_headers
from services.gateway.access.gatekeeper import RateLimiters, RequestAdmission
from services.gateway.certificate_listeners import MqttTlsListener, NatsTlsListener
from services.gateway.concurrency import ConcurrencyLimiter, ProcessCapacity
from services.gateway.connections import AddressConnections
from services.gateway.docs.catalogue import DocumentCache
from services.gateway.gateway import Gateway
from services.gateway.metrics import Metrics
from services.gateway.pages import (
    ConsoleFiles,
    ReadinessCache,
    create_pages_application,
    create_service_check,
)
from services.gateway.proxy.forward import Forwarder
from services.gateway.rates import RateLimiter, Tarpit
from services.gateway.routes import RouteTable
from services.gateway.rpc import BackgroundRpcClient
from services.gateway.settings import GatewaySettings, parse_upstreams
from services.gateway.tunnel import Tunnels
from services.gateway.upstream.service import UpstreamService


async def create_gateway(
    settings: GatewaySettings, telemetry: Telemetry, tls: ServerTls | None = None
) -> Gateway:
    """Return the gateway, whose lifespan closes the connections opened here.

    `tls` is used by the HTTP listener and the listeners for device certificates.
    """
    addresses = parse_upstreams(settings.upstreams)
    watched = parse_upstreams(settings.watched, "THINGWAY_WATCHED")
    proxies = TrustedProxies(settings.trusted_proxies)
    routes = RouteTable(upstreams=addresses)
    metrics = Metrics()
    redis = connect_redis(settings.redis_url)
    traced = telemetry.tracing is not None

    async def answer_usage(bus: Bus) -> None:
        await answer_usage_requests(bus, concurrency.measure_usage)

    rpc = BackgroundRpcClient(settings, answer_usage)
    session = ClientSession(
        cookie_jar=DummyCookieJar(), connector=TCPConnector(ssl=client_context(settings.ca_file))
    )
    bounds = _compute_capacity(settings)
    concurrency, tarpit = ConcurrencyLimiter(LimitsCache(rpc), bounds), Tarpit()
    upstreams = {
        name: UpstreamService(
            name,
            base,
            metrics,
            connect_timeout=settings.connect_timeout,
            maximum=bounds.requests,
            max_polls=bounds.polls,
            tls=client_context_for(str(base), settings.ca_file),
        )
        for name, base in addresses.items()
    }

    rejected_logins = RejectedLogins(redis)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(redis.aclose)
            stack.push_async_callback(session.close)
            for upstream in upstreams.values():
                stack.callback(upstream.close)
            stack.push_async_callback(rpc.close)
            rpc.start()
            await stack.enter_async_context(run_in_background(rejected_logins.run()))
            if tls is not None:
                for port, listener in listeners:
                    await stack.enter_async_context(listener.listen(settings.host, port, tls))
            yield

    checks = {"redis": partial(check_redis, redis)} | {
        name: create_service_check(session, base) for name, base in {**addresses, **watched}.items()
    }
    gatekeeper = RequestAdmission(
        TokenReader(redis),
        DeviceKeyReader(redis, rpc, partial(rejected_logins.record, over="HTTP")),
        AccessReader(rpc),
        _create_rate_limiters(redis, settings),
    )
    signer = HeaderSigner(settings.internal_private_key)
    connections = AddressConnections(
        proxies, min(settings.address_connections, max(1, get_open_files_limit() // 4))
    )
    listeners = _certificate_listeners(settings, connections)
    return Gateway(
        routes=routes,
        gatekeeper=gatekeeper,
        concurrency=concurrency,
        tarpit=tarpit,
        forwarder=Forwarder(upstreams, signer, settings.request_timeout, traced=traced),
        connections=connections,
        tunnels=Tunnels(
            gatekeeper=gatekeeper,
            concurrency=concurrency,
            tarpit=tarpit,
            signer=signer,
            proxies=proxies,
            upstream=addresses.get("management"),
            maximum=bounds.websockets,
            connect_timeout=settings.connect_timeout,
            ca_file=settings.ca_file,
        ),
        proxies=proxies,
        cross_origin=AllowedOrigins(settings.allowed_origins),
        pages=create_pages_application(
            ReadinessCache(checks),
            DocumentCache(session, addresses, routes.routes),
            telemetry,
            lifespan,
            ConsoleFiles() if settings.console == "on" else None,
            operations_port=settings.operations_port,
        ),
        metrics=metrics,
        headers=build_security_headers(
            settings.hsts, settings.host, has_certificate=tls is not None
        ),
        traced=traced,
        max_body=settings.max_body,
        max_header=settings.max_header,
    )


def _certificate_listeners(
    settings: GatewaySettings, connections: AddressConnections
) -> list[tuple[int, MqttTlsListener | NatsTlsListener]]:
    """Return the enabled listeners for devices with a certificate, with their ports."""
    passes, wait = CertificatePassSigner(settings.internal_private_key), settings.connect_timeout
    mqtt, nats = parse_mqtt_urls(settings.mqtt_url, settings.ca_file), settings.nats_url
    listeners: list[tuple[int, MqttTlsListener | NatsTlsListener]] = [
        (settings.certificate_port, MqttTlsListener(connections, passes, mqtt, wait)),
        (
            settings.certificate_nats_port,
            NatsTlsListener(connections, passes, nats, settings.ca_file, wait),
        ),
    ]
    return [(port, listener) for port, listener in listeners if port]


def _create_rate_limiters(redis: Redis, settings: GatewaySettings) -> RateLimiters:
    return RateLimiters(
        principal=RateLimiter(
            redis, "principal", rate=settings.principal_rate, burst=settings.principal_burst
        ),
        address=RateLimiter(
            redis, "address", rate=settings.address_rate, burst=settings.address_burst
        ),
        sign_in=RateLimiter(redis, "sign-in", rate=settings.token_rate, burst=settings.token_burst),
    )


def _compute_capacity(settings: GatewaySettings) -> ProcessCapacity:
    """Return the process's capacity for its open-file limit; a poll opens two files."""
    files = get_open_files_limit()
    return ProcessCapacity(
        requests=settings.upstream_requests,
        polls=min(settings.upstream_polls, files // 3),
        websockets=min(settings.websockets, files // 8),
        address_requests=settings.address_requests,
    )
