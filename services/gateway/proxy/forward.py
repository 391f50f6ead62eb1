"""One exchange: the request goes to its service, the answer comes back, both streaming."""

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs

from litestar.types import Send

from libs.common.errors import ThingwayError, Unavailable, UpstreamTimeout
from libs.common.identity import HeaderSigner
from services.gateway.proxy.exchange import Exchange
from services.gateway.proxy.headers import to_client, to_service
from services.gateway.proxy.upstream import Body, Upstream
from services.gateway.refusal import RequestTimeout
from services.gateway.tracing import name_span

LONGEST_POLL = 600.0
"""Seconds of `wait` that are granted on top of the time limit."""


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
        body = exchange.body
        try:
            async with asyncio.timeout(self._timeout):
                content = await body.start()
        except TimeoutError as error:
            raise RequestTimeout("the body did not come in time") from error
        try:
            return await self._pass_on(exchange, upstream, content, send)
        except UpstreamTimeout as error:
            if not body.finished.is_set():
                raise RequestTimeout("the body did not come in time") from error
            raise
        except ThingwayError:
            if body.failure is not None:
                raise body.failure from None
            raise

    async def _pass_on(
        self, exchange: Exchange, upstream: Upstream, content: Body, send: Send
    ) -> int:
        principal = exchange.principal
        headers = to_service(
            exchange.scope["headers"],
            exchange.headers,
            origin=exchange.origin,
            request_id=exchange.request_id,
            principal=None if principal is None else self._signer.sign(principal),
            length=exchange.body.length,
        )
        name_span(headers)
        async with upstream.request(
            exchange.scope["method"],
            exchange.target,
            headers=headers,
            body=content,
            timeout=self._timeout + _wait(exchange),
        ) as response:
            exchange.answered = True
            await send(
                {
                    "type": "http.response.start",
                    "status": response.status,
                    "headers": to_client(
                        response.raw_headers,
                        status=response.status,
                        request_id=exchange.request_id.encode(),
                    ),
                }
            )
            more = True
            while more:
                part, more = await upstream.part(response)
                await send({"type": "http.response.body", "body": part, "more_body": more})
            return response.status


def _wait(exchange: Exchange) -> float:
    ending = exchange.route.long_poll
    if ending is None or not exchange.path.endswith(ending) or b"wait=" not in exchange.query:
        return 0.0
    values = parse_qs(exchange.query.decode("latin-1")).get("wait", ["0"])
    try:
        return min(max(0.0, float(values[-1])), LONGEST_POLL)
    except ValueError:
        return 0.0
