"""Whatever is asked over HTTP, the others lose nothing and nobody is told anything of theirs."""

import pytest
from hypothesis import given

from tests.adversary.effort import MANY
from tests.adversary.http_made import bursts
from tests.adversary.http_wire import KINDS, Request, ask, credential, status
from tests.adversary.oracle import Oracle

pytestmark = pytest.mark.xdist_group("platform")

each_caller = pytest.mark.parametrize("kind", KINDS)


async def attack(oracle: Oracle, kind: str, burst: list[Request]) -> None:
    """Send requests one after the other; each answer is a client's mistake at worst."""
    town = oracle.town
    proof = await credential(kind, town.mallory)
    for request in burst:
        answer = await ask(town.mallory.platform.port, request.frame(town, proof))
        assert town.alice.secret.encode() not in answer, request
        assert status(answer) not in {500, 502, 504}, (request, answer)
    await oracle.judge()


@pytest.mark.slow
@each_caller
@MANY
@given(burst=bursts)
async def test_any_request(oracle: Oracle, kind: str, burst: list[Request]) -> None:
    """Any path, header and body, with the credential of another tenant or none."""
    await attack(oracle, kind, burst)
