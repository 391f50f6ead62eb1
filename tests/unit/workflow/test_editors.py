"""Which start nodes the editor of a console is offered."""

from dataclasses import dataclass
from typing import Any

import pytest

from libs.common.contracts.mqtt import LivePages, LoginRef
from libs.common.errors import Unavailable
from libs.common.identity import OWN_CONSOLE_CLIENT_ID, Principal, PrincipalKind
from services.workflow.components.catalogue import (
    CONSOLE_ACCEPT_HEADER,
    V1_1_START_NODES,
    ConsoleEditors,
    build_catalogue,
)
from services.workflow.components.reference import iterate_node_types


@dataclass
class FakeRpc:
    """Fake of `auth`."""

    live_pages: bool | None

    async def call(self, subject: str, request: LoginRef, answer: type) -> Any:
        assert request == LoginRef("family 1")
        if self.live_pages is None:
            raise Unavailable("auth is away")
        return LivePages(self.live_pages)


async def offered(client: str, accept: str, *, live_pages: bool | None) -> bool:
    """Whether the palette has `httpIn`; nodes after the start are always there."""
    user = Principal(PrincipalKind.USER, "default", "1", family="family 1", client=client)
    rpc, nodes = FakeRpc(live_pages), list(iterate_node_types())
    starts = await ConsoleEditors(rpc).list_start_nodes(user, accept)  # type: ignore[arg-type]
    groups = build_catalogue(nodes, starts)  # type: ignore[arg-type]
    assert {"httpRequest", "output"} <= {node.name for node in groups["external"]}
    names = {node.name for node in groups["entry"]}
    assert names >= V1_1_START_NODES
    return "httpIn" in names


@pytest.mark.parametrize(
    ("client", "accept", "live_pages", "expected"),
    [
        ("iab", CONSOLE_ACCEPT_HEADER, False, False),
        ("iab", CONSOLE_ACCEPT_HEADER, True, True),
        ("iab", CONSOLE_ACCEPT_HEADER, None, True),
        ("iab", "*/*", False, True),
        (OWN_CONSOLE_CLIENT_ID, CONSOLE_ACCEPT_HEADER, False, True),
    ],
    ids=["v1.1", "v1.3", "auth is away", "a program", "own console"],
)
async def test_http_in_is_offered_to_editors_that_can_create_it(
    client, accept, live_pages, expected
):
    """The existing console v1.1 never asks for live updates over MQTT, and lacks the node."""
    assert await offered(client, accept, live_pages=live_pages) is expected
