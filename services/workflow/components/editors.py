"""Which start nodes the flow editor of a console can create.

Existing editors count the start nodes of a flow with a fixed list, and refuse to save a flow that
starts with any other node. Nodes after the start may be of any type.
"""

import logging
from dataclasses import dataclass

from libs.common.bus import RpcClient
from libs.common.contracts.mqtt import HAS_LIVE_PAGES, LivePages, LoginRef
from libs.common.errors import Unavailable
from libs.common.identity import Principal

log = logging.getLogger(__name__)

CONSOLE_ACCEPTS = "application/json, text/plain, */*"
"""The header `Accept` of existing consoles; programs, which need no editor, send another one."""
V1_1_STARTS = frozenset({"simpleTimer", "trigger", "eventListener", "simpleMqtt"})
"""Start nodes of the existing console v1.1."""
V1_2_STARTS = V1_1_STARTS | {"httpIn"}
"""Start nodes of the existing console from v1.2 on. It is known by its live updates over MQTT,
which each of its pages asks for before anything else."""


@dataclass(frozen=True)
class Editors:
    """Knows the editors of consoles."""

    rpc: RpcClient

    async def start_nodes(self, user: Principal, accept: str) -> frozenset[str] | None:
        """Return the start nodes that the editor of the calling console can create.

        None stands for all. `accept` is the header of the request.
        """
        if user.uses_own_console or accept != CONSOLE_ACCEPTS:
            return None
        try:
            asked = LoginRef(user.family)
            pages = await self.rpc.call(HAS_LIVE_PAGES, asked, LivePages)
        except Unavailable as error:
            log.warning("the version of a console is unknown: %s", error)
            return V1_2_STARTS
        return V1_2_STARTS if pages.any else V1_1_STARTS
