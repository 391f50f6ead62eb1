"""Whatever a login sends on plain NATS, the others lose nothing and it hears nothing of theirs."""

import pytest
from hypothesis import given

from tests.adversary.effort import MANY
from tests.adversary.logins import ON_THE_BUS, assert_ignorant, fresh_logins
from tests.adversary.nats_made import bursts
from tests.adversary.nats_wire import Frame, attacking, received
from tests.adversary.oracle import Oracle

pytestmark = pytest.mark.xdist_group("platform")

each_login = pytest.mark.parametrize("kind", ON_THE_BUS)


async def attack(oracle: Oracle, kind: str, burst: list[Frame]) -> None:
    """Send a burst; listen on while the others are served."""
    town = oracle.town
    port = town.mallory.platform.nats_port
    async with attacking(port, (await fresh_logins(town))[kind], town, burst) as wires:
        await oracle.judge()
        assert_ignorant(await received(wires), kind, town)


@pytest.mark.slow
@each_login
@MANY
@given(burst=bursts)
async def test_any_message(oracle: Oracle, kind: str, burst: list[Frame]) -> None:
    """Any subject, reply, headers and size."""
    await attack(oracle, kind, burst)
