"""`/integration/hooks/{token}`: webhooks of network servers, open to whoever knows the token."""

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
"""What is answered without a caller."""


@dataclass(frozen=True)
class Hooks:
    """Sends what comes to the replica that its integration runs in."""

    database: Database
    rpc: RpcClient

    async def forward(self, token: str, body: bytes) -> None:
        """Return when a body is stored.

        Raises `NotFound`, `InvalidInput` naming what is wrong in it, and what says that it was not
        taken and should come again.
        """
        found = await find_hook(self.database, token)
        if found is None:
            raise NotFound("no webhook has this address", field="token")
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
    request: HttpRequest, network_hooks: NamedDependency[Hooks], token: FromPath[str]
) -> None:
    """Take an uplink, a join or what became of a downlink; it is stored when this is answered.

    The body is JSON of 64 KiB at most, as the integration with this token reads it: a message of
    The Things Stack, or one that the mapping of `webhook` fits. The token is all that is asked for.
    """
    body = await request.body()
    if len(body) > LARGEST_HOOK:
        raise TooLarge(f"the body has more than {LARGEST_HOOK} bytes", field="body")
    await network_hooks.forward(token, body)


@dataclass(frozen=True)
class HookHandlers:
    """Dependencies of the handlers."""

    network_hooks: Hooks


def create_router(database: Database, rpc: RpcClient) -> Router:
    """Return the operations with their dependencies."""
    handlers = HookHandlers(Hooks(database, rpc))
    return Router("/", route_handlers=[take_hook], dependencies=provide(handlers))
