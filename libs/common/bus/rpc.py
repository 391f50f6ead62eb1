"""Request and reply between services, on `nats.micro`.

A service answers `rpc.{service}.{operation}` with a typed struct. A `ThingwayError` is sent as a
micro service error and raised again at the caller.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from nats.micro.request import Handler, Request
from nats.micro.service import EndpointConfig, Service, ServiceConfig
from opentelemetry.trace import SpanKind

from libs.common.bus.connection import Bus
from libs.common.decoding import JSON_ERRORS
from libs.common.errors import (
    ERRORS_BY_STATUS,
    ThingwayError,
    TooLarge,
    TooManyRequests,
    Unavailable,
    UpstreamFailed,
)
from libs.common.scheduling import FairScheduler, LaneFull
from libs.common.store.mongo import StoreUnavailable, WriteNotAcknowledged
from libs.common.store.redis import RedisConnectionError, RedisTimeoutError
from libs.common.telemetry.logs import add_log_fields, get_log_field
from libs.common.telemetry.tracing import continue_trace, read_trace, trace_header
from libs.common.version import VERSION

log = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")

CALL_TIMEOUT_SECONDS = 5.0
REQUEST_ID_HEADER = "Thingway-Request"
"""Header: the id of the HTTP request that caused the call, for the log."""
TENANT_HEADER = "Thingway-Tenant"
"""Header: the tenant that a request is for; tenants take turns."""
CALL_TIMEOUT_HEADER = "Thingway-Patience"
"""Header: seconds for which the client waits for the answer. Older versions send this name, too."""
MAX_CONCURRENT_REQUESTS = 128
"""Concurrent requests of an operation, at most half of them of one tenant."""
MAX_WAITING_REQUESTS, MAX_WAITING_BYTES = 10_000, 16 * 1024**2
"""Waiting requests of a tenant per operation, and their bytes; more are rejected (429)."""

MAX_ERROR_LENGTH = 2000
"""Maximum characters of an error message in an answer."""
_TOO_LARGE_MESSAGE = "larger than a message of the bus may be"


class NoResponders(Unavailable):
    """503: no service offers the operation at present."""


class RawRequest(NamedTuple):
    """A request that is not JSON: the payload is its body, a header holds its tenant."""

    tenant: str
    body: bytes


class RpcServer:
    """The operations that a service offers to other services.

    Requests of an operation are processed concurrently, and tenants take turns.
    """

    def __init__(self, bus: Bus, service: str, *, discovered: bool = True) -> None:
        """`service` is the token, or the tokens, after `rpc.`.

        Without `discovered`, the server does not answer `$SRV.>`, which integrations may not use.
        """
        self._bus = bus
        self._service = service
        self._discovered = discovered
        self._micro: Service | None = None
        self._endpoints: list[EndpointConfig] = []
        self._schedulers: list[FairScheduler] = []

    def offer(
        self,
        operation: str,
        request: type[Q],
        answer: Callable[[Q], Awaitable[Any]],
        *,
        at_once: int = MAX_CONCURRENT_REQUESTS,
    ) -> None:
        """Answer requests to `rpc.{service}.{operation}` with the result of `answer`.

        A request is JSON of the type `request`, or a `RawRequest`. Up to `at_once` requests are
        processed concurrently; the others wait in their tenant's lane.
        """

        async def plain(_: str, decoded: Q) -> Any:
            return await answer(decoded)

        self._offer(operation, f"rpc.{self._service}.{operation}", request, plain, at_once)

    def offer_each(
        self, operation: str, request: type[Q], answer: Callable[[str, Q], Awaitable[Any]]
    ) -> None:
        """Answer `rpc.{service}.{operation}.{caller}` with `answer(caller, request)`.

        The permissions of the bus restrict each caller to its own subject, so `caller` is
        authentic. Each caller has a lane, in which tenants take turns.
        """
        self._offer(operation, f"rpc.{self._service}.{operation}.*", request, answer)

    def _offer(
        self,
        operation: str,
        subject: str,
        request: type[Q],
        answer: Callable[[str, Q], Awaitable[Any]],
        at_once: int = MAX_CONCURRENT_REQUESTS,
    ) -> None:
        async def handle(message: Request) -> None:
            caller = message.subject.rpartition(".")[2]
            try:
                decoded = _decode(message, request)
            except JSON_ERRORS as error:
                await message.respond_error("400", str(error)[:MAX_ERROR_LENGTH])
                return
            try:
                result = msgspec.json.encode(await answer(caller, decoded))
            except msgspec.DecodeError as error:
                await message.respond_error("400", str(error)[:MAX_ERROR_LENGTH])
            except (
                StoreUnavailable,
                WriteNotAcknowledged,
                RedisConnectionError,
                RedisTimeoutError,
            ) as error:
                log.warning(
                    "rpc.%s.%s: a store does not answer: %r", self._service, operation, error
                )
                await message.respond_error("503", "a database does not answer at the moment")
            except ThingwayError as error:
                text = error.text[:MAX_ERROR_LENGTH]
                await message.respond_error(str(error.status), text, data=error.code.encode())
            except Exception:
                log.exception("rpc.%s.%s failed", self._service, operation)
                await message.respond_error("500", "internal error of the service; see its log")
            else:
                await _respond(message, result)

        scheduled = self._scheduled(subject.removesuffix(".*"), handle, at_once)
        self._endpoints.append(EndpointConfig(name=operation, subject=subject, handler=scheduled))

    def _scheduled(self, name: str, handle: Handler, at_once: int) -> Handler:
        """Return a handler that starts `handle` without waiting for it, unlike nats.micro."""
        scheduler = FairScheduler(name, at_once, items=MAX_WAITING_REQUESTS, size=MAX_WAITING_BYTES)
        self._schedulers.append(scheduler)

        async def answer(message: Request, tenant: str, arrived: float) -> None:
            headers = message.headers or {}
            names = {"tenant": tenant, "requestId": headers.get(REQUEST_ID_HEADER)}
            add_log_fields(**{name: value for name, value in names.items() if value})
            try:
                if time.monotonic() - arrived > float(headers.get(CALL_TIMEOUT_HEADER, "inf")):
                    log.warning("%s: the client gave up before its turn", message.subject)
                    return
                with continue_trace(name, SpanKind.SERVER, read_trace(headers)):
                    await handle(message)
            except (NatsError, ValueError) as error:  # ValueError: the request has no reply subject
                log.warning("%s: the answer could not be sent: %r", message.subject, error)

        async def receive(message: Request) -> None:
            tenant = (message.headers or {}).get(TENANT_HEADER, "")
            lane = tenant if message.subject == name else message.subject.rpartition(".")[2]
            job = partial(answer, message, tenant, time.monotonic())
            try:
                scheduler.start(lane, job, sub=tenant, size=len(message.data))
            except LaneFull as error:
                await message.respond_error(str(error.status), error.text, data=error.code.encode())

        return receive

    async def start(self) -> None:
        """Start answering requests."""
        name = f"thingway-{self._service.replace('.', '-')}"
        self._micro = Service(self._bus.client, ServiceConfig(name=name, version=VERSION))
        if self._discovered:
            await self._micro.start()
        for endpoint in self._endpoints:
            await self._micro.add_endpoint(endpoint)

    async def stop(self) -> None:
        """Stop accepting requests, and finish those that are being processed."""
        if self._micro and self._bus.is_connected:
            await self._micro.stop()
        for scheduler in self._schedulers:
            await scheduler.finish()


class RpcClient:
    """Calls the operations of other services."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def call(
        self, subject: str, request: Any, answer: type[A], timeout: float = CALL_TIMEOUT_SECONDS
    ) -> A:
        """Call `subject` and return the answer, within `timeout` seconds.

        Raises the error of the service, `Unavailable`, `UpstreamFailed` for an invalid answer, and
        `TooLarge` for a request above the limit of the bus.
        """
        headers = {**trace_header(), CALL_TIMEOUT_HEADER: f"{timeout:g}"}
        if request_id := get_log_field("requestId"):
            headers[REQUEST_ID_HEADER] = request_id
        if tenant := getattr(request, "tenant", None) or get_log_field("tenant"):
            headers[TENANT_HEADER] = tenant
        try:
            raw = isinstance(request, RawRequest)
            payload = request.body if raw else msgspec.json.encode(request)
            message = await self._bus.client.request(
                subject, payload, timeout=timeout, headers=headers
            )
        except MaxPayloadError as error:
            raise TooLarge(f"the request to {subject} is {_TOO_LARGE_MESSAGE}") from error
        except NoRespondersError as error:
            raise NoResponders(f"no service answers {subject}") from error
        except (NatsError, TimeoutError) as error:
            raise Unavailable(f"{subject} did not answer: {error!r}") from error
        headers = message.headers or {}
        if "Nats-Service-Error-Code" in headers:
            status = int(headers["Nats-Service-Error-Code"])
            raise remote_error(
                status, message.data.decode(errors="replace"), headers.get("Nats-Service-Error", "")
            )
        try:
            return msgspec.json.decode(message.data, type=answer)
        except JSON_ERRORS as error:
            raise UpstreamFailed(f"{subject} sent an invalid answer: {error}") from error


def _decode(message: Request, request: type[Q]) -> Q:
    if request is RawRequest:
        return cast("Q", RawRequest((message.headers or {}).get(TENANT_HEADER, ""), message.data))
    return msgspec.json.decode(message.data or b"{}", type=request)


async def _respond(message: Request, answer: bytes) -> None:
    try:
        await message.respond(answer)
    except MaxPayloadError:
        await message.respond_error(
            str(TooLarge.status), f"the answer is {_TOO_LARGE_MESSAGE}", data=TooLarge.code.encode()
        )


def remote_error(status: int, code: str, text: str) -> ThingwayError:
    """Return the error that a service sent in its answer."""
    if status == Unavailable.status:
        return Unavailable(text)
    if status == TooManyRequests.status:
        return TooManyRequests(text, retry_after=1.0)
    kind = ERRORS_BY_STATUS.get(status, ThingwayError)
    return kind(text, code=code or kind.code)
