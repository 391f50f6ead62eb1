"""Operations on applications, with fakes."""

import pytest

from libs.common.contracts.auth import (
    ASSIGN_DEVICE,
    RECLAIM_DEVICE,
    AssignDevice,
    OwnedDevice,
    ReclaimDevice,
)
from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Caller, Principal, PrincipalKind
from services.auth.applications.model import ApplicationUpdate, NewApplication
from services.auth.applications.service import ApplicationService, parse_allow_list
from services.auth.client_secrets import matches_secret_hash
from tests.unit.auth.fakes import CLIENT_ID, FakeApplications, FakeChanges, application

ID = 1_000_000
REVOKED = ("revoked", PrincipalKind.APPLICATION, "1000000", 4)
GONE = ("disconnected", f"app.{CLIENT_ID}")


def caller(tenant: str = "t1") -> Caller:
    return Caller(Principal(kind=PrincipalKind.USER, tenant=tenant, subject="1", super_admin=True))


class Platform:
    """The service with a log of its actions."""

    def __init__(self, *applications) -> None:
        self.log: list = []
        self.store = FakeApplications(*applications)
        self.changes = FakeChanges(self.log)
        self.service = ApplicationService(self.store, self.changes, self, self)

    async def exists(self, tenant: str) -> bool:
        return tenant == "t1"

    async def call(self, subject: str, request, answer) -> OwnedDevice:
        """Answer as `device` does."""
        self.log.append((subject, request))
        return OwnedDevice("SN1", "Roof")


def rotate(platform, tenant="t1"):
    return platform.service.rotate_secret(caller(tenant), ID)


def delete(platform, tenant="t1"):
    return platform.service.delete(caller(tenant), ID)


def allow(platform, tenant="t1"):
    return platform.service.set_allowed_addresses(caller(tenant), ID, ["192.0.2.0/24"])


def update(platform, tenant="t1"):
    return platform.service.update(caller(tenant), ID, ApplicationUpdate(name="second"))


def get(platform, tenant="t1"):
    return platform.service.get(caller(tenant), ID)


async def test_a_new_application_logs_in_with_the_secret_that_is_shown():
    """Only its hash is stored; the name is trimmed."""
    platform = Platform()

    shown = await platform.service.create(caller(), NewApplication(name=" meter "))

    stored = platform.store.known[5]
    assert (shown.application_id, shown.name, stored.generation) == (5, "meter", 1)
    assert matches_secret_hash(shown.client_secret, stored.secret_hash)
    assert shown.client_secret not in repr(stored)


async def test_there_is_no_application_without_a_tenant():
    """404, and nothing is stored."""
    platform = Platform()

    with pytest.raises(NotFound) as caught:
        await platform.service.create(caller("t2"), NewApplication(name="meter"))

    assert (caught.value.field, platform.store.known) == ("tenant", {})


@pytest.mark.parametrize(
    ("operation", "action"), [(rotate, "rotated"), (delete, "deleted"), (allow, "updated")]
)
async def test_revoking_tokens_also_closes_connections(operation, action):
    """A new secret, a new allowlist and a deletion first revoke the tokens."""
    platform = Platform(application())

    await operation(platform)

    assert platform.log == [REVOKED, GONE, action]


@pytest.mark.parametrize("operation", [rotate, delete, allow])
async def test_an_application_without_events_has_no_connections_to_close(operation):
    """It could never connect to the bus."""
    platform = Platform(application(events=False))

    await operation(platform)

    assert GONE not in platform.log


async def test_a_new_name_leaves_tokens_alone():
    """They carry it for people only, until they are refreshed."""
    platform = Platform(application())

    await update(platform)

    assert platform.log == ["updated"]
    assert (platform.store.known[ID].name, platform.store.known[ID].events) == ("second", True)


@pytest.mark.parametrize(("before", "after", "ended"), [(True, False, [GONE]), (False, True, [])])
async def test_without_events_connections_end(before, after, ended):
    """The bus is closed to the application from then on; its tokens live."""
    platform = Platform(application(events=before))

    await platform.service.update(caller(), ID, ApplicationUpdate(name="first", events=after))

    assert platform.log == [*ended, "updated"]


async def test_an_event_contains_only_changed_fields():
    """Old and new values have the same names."""
    platform = Platform(application())

    await allow(platform)

    (entry,) = platform.changes.entries
    assert (entry.before, entry.after) == (
        {"allowed_addresses": []},
        {"allowed_addresses": ["192.0.2.0/24"]},
    )


async def test_an_update_without_a_change_is_not_published():
    """The same name and list create no entry and revoke no token."""
    platform = Platform(application(allowed_addresses=("192.0.2.0/24",)))

    await platform.service.update(caller(), ID, ApplicationUpdate(name=" first ", events=True))
    await platform.service.set_allowed_addresses(caller(), ID, ["192.0.2.0/255.255.255.0"])

    assert platform.log == []


@pytest.mark.parametrize("operation", [get, rotate, delete, allow, update])
async def test_an_unknown_application_is_404(operation):
    """So is one of another tenant."""
    platform = Platform(application())

    with pytest.raises(NotFound):
        await operation(platform, "t2")

    assert platform.log == []


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\nb"])
async def test_a_bad_name_is_refused(name):
    """Blank, overlong, or with control characters."""
    with pytest.raises(InvalidInput) as caught:
        await Platform().service.create(caller(), NewApplication(name=name))

    assert caught.value.field == "name"


def test_a_list_has_each_entry_once_in_its_shortest_spelling():
    """Addresses and networks of both families, in the order they came."""
    given = [
        " 192.0.2.1 ",
        "2001:DB8:0:0::1",
        "10.0.0.0/255.0.0.0",
        "192.0.2.1/32",
        "2001:db8::/32",
        "::ffff:192.0.2.1",
        "::ffff:10.0.0.0/104",
        "0.0.0.0/0",
    ]

    assert parse_allow_list(given) == (
        "192.0.2.1",
        "2001:db8::1",
        "10.0.0.0/8",
        "2001:db8::/32",
        "0.0.0.0/0",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host.example",
        "192.0.2.256",
        "192.0.02.1",
        "192.0.2",
        "192.0.2.1/33",
        "192.0.2.1/24",
        "192.0.2.1:80",
        "2001:db8::/129",
        "2001:db8::1/64",
        "fe80::1%eth0",
        "*",
        "12",
    ],
)
def test_an_invalid_network_is_rejected_with_its_position(text):
    """An address with host bits and a prefix length is ambiguous and rejected, too."""
    with pytest.raises(InvalidInput) as caught:
        parse_allow_list(["192.0.2.1", text])

    assert caught.value.field == "allowed_addresses[1]"


async def test_an_assignment_is_published_after_it_is_done():
    """A repetition after an interruption adds its entry, too."""
    platform = Platform(application())
    await platform.service.assign_device(caller(), ID, 7)
    await platform.service.return_device(caller(), ID, 7)
    assert platform.log == [
        (ASSIGN_DEVICE, AssignDevice("t1", 7, ID, "first")),
        "device_given",
        (RECLAIM_DEVICE, ReclaimDevice("t1", 7, ID, 1)),
        "device_taken",
    ]
    assert platform.changes.entries[0].after == {"device_id": "7", "sn": "SN1", "name": "Roof"}


async def test_an_application_of_another_tenant_is_given_nothing():
    """404, and nothing is asked of `device`."""
    platform = Platform(application())
    with pytest.raises(NotFound):
        await platform.service.assign_device(caller("t2"), ID, 7)
    assert platform.log == []
