"""Request and reply between services, on `nats.micro`.

A service answers `rpc.{service}.{operation}` with a typed struct; an error of ours
travels as a micro service error and is raised again at the caller.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from nats.micro import add_service
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, Service, ServiceConfig

from libs.common.bus.connection import Bus
from libs.common.errors import (
    BY_STATUS,
    ThingwayError,
    TooLarge,
    Unavailable,
    UpstreamFailed,
)
from libs.common.store.mongo import StoreUnavailable
from libs.common.store.redis import RedisConnectionError, RedisTimeoutError

log = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")

TIMEOUT = 5.0
QUEUE = "q"
"""The queue group of nats.micro: replicas share the requests."""
AT_ONCE = 64
"""Requests that a `PlainRpcServer` has in hand; the others wait in the subscriptions."""


_TOO_LARGE = "larger than a message of the bus may be"


class NobodyAnswers(Unavailable):
    """503: no service offers the operation at the moment."""


class RpcServer:
    """The operations that a service offers to the others."""

    def __init__(self, bus: Bus, service: str, version: str = "1.0.0") -> None:
        """`service` is the word, or the words, after `rpc.`."""
        self._bus = bus
        self._service = service
        self._version = version
        self._micro: Service | None = None
        self._endpoints: list[EndpointConfig] = []

    def offer(
        self, operation: str, request: type[Q], answer: Callable[[Q], Awaitable[Any]]
    ) -> None:
        """Answer `rpc.{service}.{operation}`, whose request is a JSON `request`."""

        async def plain(_: str, decoded: Q) -> Any:
            return await answer(decoded)

        self._offer(operation, f"rpc.{self._service}.{operation}", request, plain)

    def offer_each(
        self, operation: str, request: type[Q], answer: Callable[[str, Q], Awaitable[Any]]
    ) -> None:
        """Answer `rpc.{service}.{operation}.{who}` with `answer(who, request)`.

        Who may use which subject is up to the bus's permissions, so `who` is proven.
        """
        self._offer(operation, f"rpc.{self._service}.{operation}.*", request, answer)

    def _offer(
        self,
        operation: str,
        subject: str,
        request: type[Q],
        answer: Callable[[str, Q], Awaitable[Any]],
    ) -> None:
        async def handle(message: Request) -> None:
            who = message.subject.rpartition(".")[2]
            try:
                result = await answer(who, msgspec.json.decode(message.data or b"{}", type=request))
            except msgspec.DecodeError as error:
                await message.respond_error("400", str(error))
            except (StoreUnavailable, RedisConnectionError, RedisTimeoutError) as error:
                log.warning(
                    "rpc.%s.%s: a store does not answer: %r", self._service, operation, error
                )
                await message.respond_error("503", "a store does not answer at the moment")
            except ThingwayError as error:
                await message.respond_error(str(error.status), error.text, data=error.code.encode())
            except Exception:
                log.exception("rpc.%s.%s failed", self._service, operation)
                await message.respond_error("500", "the service failed; its log says why")
            else:
                await _respond(message, msgspec.json.encode(result))

        self._endpoints.append(EndpointConfig(name=operation, subject=subject, handler=handle))

    async def start(self) -> None:
        """Begin to answer."""
        self._micro = await add_service(
            self._bus.client,
            ServiceConfig(
                name=f"thingway-{self._service.replace('.', '-')}", version=self._version
            ),
        )
        for endpoint in self._endpoints:
            await self._micro.add_endpoint(endpoint)

    async def stop(self) -> None:
        """Stop answering; requests in hand are finished."""
        if self._micro:
            await self._micro.stop()


class PlainRpcServer(RpcServer):
    """The same for a caller, without the discovery of nats.micro, which needs rights of its own.

    Requests are handled beside each other, so that a slow one keeps nobody waiting.
    """

    def __init__(self, bus: Bus, service: str) -> None:
        super().__init__(bus, service)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        """Begin to answer."""
        for endpoint in self._endpoints:
            take = partial(self._take, endpoint)
            subject = endpoint.subject or endpoint.name
            subscribed = await self._bus.client.subscribe(subject, queue=QUEUE, cb=take)
            self._subscriptions.append(subscribed)

    async def stop(self) -> None:
        """Stop taking requests and finish those in hand."""
        if self._bus.connected:
            for subscription in self._subscriptions:
                await subscription.unsubscribe()
        self._subscriptions.clear()
        if self._running:
            await asyncio.wait(self._running)

    async def _take(self, endpoint: EndpointConfig, message: Msg) -> None:
        await self._slots.acquire()
        task = asyncio.ensure_future(self._answer(endpoint, message))
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._slots.release()

    async def _answer(self, endpoint: EndpointConfig, message: Msg) -> None:
        if not message.reply:
            return
        try:
            await endpoint.handler(Request(message))
        except NatsError as error:
            log.warning("%s: the answer could not be sent: %r", endpoint.subject, error)


class RpcClient:
    """Calls the operations of other services."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def call(
        self, subject: str, request: Any, answer: type[A], timeout: float = TIMEOUT
    ) -> A:
        """Call `subject`; raise the error of the other side, `Unavailable` or `UpstreamFailed`."""
        try:
            message = await self._bus.client.request(
                subject, msgspec.json.encode(request), timeout=timeout
            )
        except MaxPayloadError as error:
            raise TooLarge(f"the request to {subject} is {_TOO_LARGE}") from error
        except NoRespondersError as error:
            raise NobodyAnswers(f"nobody answers {subject}") from error
        except (NatsError, TimeoutError) as error:
            raise Unavailable(f"{subject} did not answer: {error!r}") from error
        headers = message.headers or {}
        if "Nats-Service-Error-Code" in headers:
            raise _error(headers, message.data)
        try:
            return msgspec.json.decode(message.data, type=answer)
        except msgspec.DecodeError as error:
            raise UpstreamFailed(f"{subject} answered nonsense: {error}") from error


async def _respond(message: Request, answer: bytes) -> None:
    try:
        await message.respond(answer)
    except MaxPayloadError:
        await message.respond_error(
            str(TooLarge.status), f"the answer is {_TOO_LARGE}", data=TooLarge.code.encode()
        )


def _error(headers: dict[str, str], data: bytes) -> ThingwayError:
    status = int(headers["Nats-Service-Error-Code"])
    text = headers.get("Nats-Service-Error", "")
    if status == Unavailable.status:
        return Unavailable(text)
    kind = BY_STATUS.get(status, ThingwayError)
    return kind(text, code=data.decode() or kind.code)
