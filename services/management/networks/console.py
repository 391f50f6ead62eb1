"""The operation `/integration/hooks/{token}`: webhooks of network servers."""

from dataclasses import dataclass
from typing import Any

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath

from libs.common.bus import RawRequest, RpcClient
from libs.common.contracts.frames import LARGEST_HOOK
from libs.common.contracts.integrations import Acknowledged
from libs.common.errors import NotFound, TooLarge
from libs.common.http import HttpRequest, provide
from libs.common.http.console import post
from libs.common.store.mongo import Database
from services.management.networks.store import find_hook

PATHS = frozenset({"/integration/hooks/"})
"""Paths without a principal."""


@dataclass(frozen=True)
class WebhookForwarder:
    """Forwards webhook requests to the replica that runs their integration."""

    database: Database
    rpc: RpcClient

    async def forward(self, token: str, body: bytes) -> None:
        """Forward a body; return when its content is stored.

        Raises `NotFound`, `InvalidInput` for the body, and errors after which the sender should
        retry.
        """
        found = await find_hook(self.database, token)
        if found is None:
            raise NotFound("the webhook does not exist", field="token")
        tenant, integration = found
        call = RawRequest(tenant, body)
        await self.rpc.call(f"rpc.integration.{integration}.hook", call, Acknowledged)


@post(
    "/integration/hooks/{token:str}",
    body=Any,
    example={"devEui": "24e124136b502217", "port": 85, "counter": 17, "data": "AXVkA2fXAA=="},
    request_max_body_size=LARGEST_HOOK,
    tags=["Integrations"],
    waits=True,
)
async def take_hook(
    request: HttpRequest, network_hooks: NamedDependency[WebhookForwarder], token: FromPath[str]
) -> None:
    """Receive an uplink, a join or the state of a downlink; it is stored before the answer.

    The body is JSON of at most 64 KiB for the integration with this token: a message of The Things
    Stack, or a message that the mapping of `webhook` matches. The token is the only credential.
    """
    body = await request.body()
    if len(body) > LARGEST_HOOK:
        raise TooLarge(f"the body has more than {LARGEST_HOOK} bytes", field="body")
    await network_hooks.forward(token, body)


@dataclass(frozen=True)
class HookHandlers:
    """Dependencies of the handlers."""

    network_hooks: WebhookForwarder


def create_router(database: Database, rpc: RpcClient) -> Router:
    """Return the router of the operations, with their dependencies."""
    handlers = HookHandlers(WebhookForwarder(database, rpc))
    return Router("/", route_handlers=[take_hook], dependencies=provide(handlers))
