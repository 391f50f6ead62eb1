"""A look through all connections of a server that come and go meanwhile."""

import random
from collections.abc import Callable

import pytest

from libs.common.contracts.auth import Connection
from services.device.telemetry import presence_watch as looks
from services.device.telemetry.presence_watch import ConnectionScan
from services.device.telemetry.system_account import ConnectedUser, ConnzPage

PAGE, OVERLAP = 10, 3


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "ROWS_PER_ANSWER", PAGE)
    monkeypatch.setattr(looks, "OVERLAP_ROWS", OVERLAP)


class Server:
    """Connections by cid, as a server lists them."""

    def __init__(self, number: int) -> None:
        self.open = list(range(1, number + 1))

    async def page(self, server: str, offset: int) -> ConnzPage:
        some = self.open[offset : offset + PAGE]
        users = [ConnectedUser(Connection(server, cid), f"SN{cid}") for cid in some]
        return ConnzPage(some[0] if some else 0, some[-1] if some else 0, len(some), users)


def nothing() -> None:
    """Nobody comes or goes."""


async def found(server: Server, between: Callable[[], None] = nothing) -> set[int]:
    """The cids of a whole look; `between` runs between two pages."""
    look, reached = ConnectionScan(server, "S"), 0
    cids: list[int] = []
    while not look.ended:
        stretch = await look.next()
        assert stretch.after == reached
        cids += [user.connection.cid for user in stretch.users]
        assert (stretch.until is None) == look.ended
        reached = stretch.until or 0
        between()
    assert len(cids) == len(set(cids))
    return set(cids)


@pytest.mark.parametrize("number", [0, 1, 9, 10, 11, 20, 57])
async def test_every_connection_is_seen_once(number: int):
    """However many pages there are, full or not; stretches lie side by side."""
    assert await found(Server(number)) == set(range(1, number + 1))


async def test_rows_that_move_to_the_front_hide_nobody():
    """Those before them close meanwhile: the page is asked for from further in front."""
    server = Server(60)

    def close_eight() -> None:
        del server.open[:8]

    assert set(range(41, 61)) <= await found(server, close_eight)


@pytest.mark.parametrize("seed", range(30))
async def test_open_connections_are_listed_while_others_change(seed: int):
    """Others close and open at every position of the list."""
    chance = random.Random(seed)
    server = Server(chance.randrange(100))
    staying = set(chance.sample(server.open, len(server.open) // 2))

    def stir() -> None:
        leaving = [cid for cid in server.open if cid not in staying]
        for cid in chance.sample(leaving, min(len(leaving), chance.randrange(15))):
            server.open.remove(cid)
        if len(server.open) < 150 and chance.random() < 0.8:
            coming = {chance.randrange(1, 500) for _ in range(chance.randrange(8))}
            server.open = sorted({*server.open, *coming})

    assert staying <= await found(server, stir)


async def test_a_server_that_empties_ends_the_look():
    """There is no page left to begin before the last one seen."""
    server = Server(40)
    assert await found(server, server.open.clear) == set(range(1, PAGE + 1))
