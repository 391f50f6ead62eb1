"""How many connections a user may have, and which of them end, with fakes."""

import pytest

from libs.common.clock import now_ms
from libs.common.contracts.auth import CLOSE_CONNECTIONS, Connection, Connections, Done
from libs.common.contracts.mqtt import MqttLoggedIn
from libs.common.errors import Unavailable
from libs.common.identity.device_keys import DeviceKeyCopy
from services.auth.bus_credentials import (
    BusCredentialLookup,
    derive_application_credential,
    derive_credential,
)
from services.auth.connections import MAX_REPORT_DELAY_MS, AdmissionRecord, UserConnections
from tests.unit.auth.fakes import CLIENT_ID, FakeApplications, application

OLD, NEW = Connection("S", 1), Connection("S", 2)


class Admissions:
    """Admissions in memory."""

    def __init__(self) -> None:
        self.kept: list[AdmissionRecord] = []
        self.age = 0

    async def add(self, user, tenant, connection, name):
        at = now_ms() - self.age
        self.kept.insert(0, AdmissionRecord(connection.server, connection.cid, name, at))
        return len(self.kept)

    async def list_latest(self, user):
        return self.kept


class Live:
    """Open connections."""

    def __init__(self, admissions: Admissions) -> None:
        self.open: set[Connection] = set()
        self.away = False
        self.late: Connection | None = None
        self._admissions = admissions

    async def call(self, subject, request, answer, *, timeout):
        """Answer as `device` does."""
        if subject == CLOSE_CONNECTIONS:
            self.open -= set(request.connections)
            return Done()
        if self.away:
            raise Unavailable("away")
        found = list(self.open)
        if self.late:
            await self._admissions.add(request.user, "t1", self.late, "new")
            self.open.add(self.late)
        return Connections(found)


class Current:
    """The credentials that are good now."""

    def __init__(self) -> None:
        self.names: set[str] = {"new"}

    async def list_credentials(self, user):
        return self.names


class World:
    def __init__(self) -> None:
        self.admissions, self.current = Admissions(), Current()
        self.live = Live(self.admissions)
        self.connections = UserConnections(self.admissions, self.live, self.current)

    async def enter(self, connection: Connection, name: str, most: int) -> bool:
        kept = await self.admissions.add("SN1", "t1", connection, name)
        return await self.connections.has_room("SN1", connection, kept, most)

    async def admit(self, connection: Connection, name: str = "new", most: int = 2) -> bool:
        admitted = await self.enter(connection, name, most)
        if admitted:
            self.live.open.add(connection)
        return admitted


async def test_connections_of_an_earlier_key_end_and_those_of_the_new_one_stay():
    """Again and again, and those that were admitted too long ago to be known end too."""
    world = World()
    unknown = Connection("S", 9)
    world.live.open.add(unknown)
    await world.admit(OLD, "old")
    await world.admit(NEW, "new", most=9)
    for _ in range(2):
        await world.connections.close_revoked("SN1")
        assert world.live.open == {NEW}


async def test_connections_end_with_their_credential():
    """All connections of a deleted device are closed."""
    world = World()
    await world.admit(NEW)
    world.current.names = set()
    await world.connections.close_revoked("SN1")
    assert world.live.open == set()


async def test_a_new_key_that_comes_while_connections_are_looked_for_keeps_its_own():
    """It was not found, or it is known by then."""
    world = World()
    await world.admit(OLD, "old")
    world.live.late = NEW
    await world.connections.close_revoked("SN1")
    assert world.live.open == {NEW}


async def test_connections_that_cannot_be_closed_are_reported():
    """So the caller tries again."""
    world = World()
    world.live.away = True
    with pytest.raises(Unavailable):
        await world.connections.close_revoked("SN1")


async def test_a_user_has_so_many_connections_and_no_more():
    """The next is admitted when one has ended."""
    world = World()
    world.admissions.age = MAX_REPORT_DELAY_MS + 1
    ids = [Connection("S", cid) for cid in range(4)]
    assert [await world.admit(id_) for id_ in ids[:3]] == [True, True, False]
    world.live.open.discard(ids[0])
    assert await world.admit(ids[3])


async def test_unreported_connections_count():
    """Simultaneous logins cannot exceed the limit."""
    world = World()
    found = [await world.enter(Connection("S", n), "k", 2) for n in range(5)]
    assert found == [True, True, False, False, False]


async def test_everybody_is_let_in_while_nobody_can_count():
    """`device` is away."""
    world = World()
    world.live.away = True
    assert all([await world.admit(Connection("S", cid)) for cid in range(5)])


class Keys:
    """One device, one integration."""

    async def get(self, sn):
        return DeviceKeyCopy(sn, 1, "t1", "hash", ["0A", "0B"]) if sn == "SN1" else None

    async def find_secret_hash(self, integration):
        return "hash" if integration == "lamps" else None

    async def login(self, access_key, secret=None):
        return MqttLoggedIn("t1", "digest") if access_key == "gate@t1" else MqttLoggedIn()


@pytest.mark.parametrize(
    ("user", "changes", "expected"),
    [
        ("integration.lamps", {}, {derive_credential("hash")}),
        ("integration.doors", {}, set()),
        (f"app.{CLIENT_ID}", {}, {derive_application_credential(application())}),
        (f"app.{CLIENT_ID}", {"events": False}, set()),
        ("app.other", {}, set()),
        (CLIENT_ID, {}, set()),
        ("flows.gate@t1", {}, {derive_credential("digest")}),
        ("flows.other@t1", {}, set()),
        ("SN1", {}, {derive_credential("hash"), derive_credential("0A"), derive_credential("0B")}),
    ],
)
async def test_each_user_has_the_credentials_of_its_kind(user, changes, expected):
    """An SN that looks like a client id is an SN; a device has a key and certificates."""
    keys = Keys()
    known = BusCredentialLookup(keys, FakeApplications(application(**changes)), keys, keys)
    assert await known.list_credentials(user) == expected


def test_a_changed_allow_list_is_another_credential():
    """It raises the generation and leaves the secret."""
    before = application()
    assert derive_application_credential(before) != derive_application_credential(
        application(generation=4)
    )
