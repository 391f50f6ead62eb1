"""One exchange: the request goes to its service, the answer comes back, both streaming."""

from collections.abc import Mapping

from litestar.types import Send

from libs.common.errors import Unavailable
from libs.common.identity import PRINCIPAL_HEADER, HeaderSigner
from services.gateway.proxy.exchange import Exchange
from services.gateway.proxy.headers import to_client, to_service
from services.gateway.refusal import slow_client
from services.gateway.tracing import name_span
from services.gateway.upstream.answer import Answer, Field
from services.gateway.upstream.service import Request, Upstream

_PRINCIPAL = PRINCIPAL_HEADER.encode()


class Forwarder:
    """Sends exchanges to the services."""

    def __init__(
        self, upstreams: Mapping[str, Upstream], signer: HeaderSigner, timeout: float
    ) -> None:
        self._upstreams = upstreams
        self._signer = signer
        self._timeout = timeout

    async def forward(self, exchange: Exchange, send: Send) -> int:
        """Run the exchange and return the status.

        Raises `ThingwayError` when the service fails, `ClientGone` when the client does.
        """
        upstream = self._upstreams.get(exchange.route.upstream)
        if upstream is None:
            raise Unavailable(f"the service {exchange.route.upstream} is not part of this platform")
        taken = upstream.take(poll=exchange.wait > 0)
        try:
            return await self._exchange(exchange, upstream, send)
        finally:
            taken.give()

    async def _exchange(self, exchange: Exchange, upstream: Upstream, send: Send) -> int:
        body, watch = exchange.body, exchange.watch
        watch.limit(
            self._timeout + exchange.wait,
            lambda: slow_client() if body.awaited else upstream.timed_out(),
        )
        connection, answer = await upstream.begin(
            Request(
                exchange.scope["method"],
                exchange.target,
                self._fields(exchange),
                await body.start() if body.exists else None,
                body.length,
            )
        )
        try:
            await self._answer(exchange, upstream, answer, send)
        finally:
            upstream.end(connection)
        return answer.status

    async def _answer(
        self, exchange: Exchange, upstream: Upstream, answer: Answer, send: Send
    ) -> None:
        status, request_id, watch = answer.status, exchange.request_id, exchange.watch
        fields = to_client(answer.fields, status=status, request_id=request_id)
        exchange.answered = True
        await send({"type": "http.response.start", "status": status, "headers": fields})
        more = True
        while more:
            if not answer.complete:
                watch.limit(self._timeout, upstream.timed_out)
            part, more = await upstream.part(answer)
            if more:
                watch.limit(self._timeout, slow_client)
            await send({"type": "http.response.body", "body": part, "more_body": more})

    def _fields(self, exchange: Exchange) -> list[Field]:
        fields = to_service(
            exchange.scope["headers"], origin=exchange.origin, request_id=exchange.request_id
        )
        if exchange.principal is not None:
            fields.append((_PRINCIPAL, self._signer.sign(exchange.principal).encode()))
        return name_span(fields)
