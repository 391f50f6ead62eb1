"""Who comes in to the bus, with fakes."""

import pytest

from libs.common.identity import Caller
from libs.common.identity.device_keys import DeviceKeyCopy, device_key_hash
from services.auth.callout.permissions import (
    application_permissions,
    device_permissions,
    integration_permissions,
)
from services.auth.callout.service import Admission, Doorkeeper
from services.auth.secret_hash import secret_hash
from tests.unit.auth.fakes import CLIENT_ID, SECRET, FakeApplications, application

HOST = "192.0.2.1"
UUID_SN = "9b2f4c1e-1111-4222-8333-0000000000ff"


class FakeDevices:
    """Devices with the key `k`."""

    def __init__(self, *sns: str) -> None:
        self.sns = {sn.upper(): sn for sn in sns}

    async def log_in(self, sn: str, key: str):
        stored = self.sns.get(sn.upper())
        if stored is None or key != "k":
            return None
        return DeviceKeyCopy(stored, 1, "t1", device_key_hash("k"))


class FakeIntegrations:
    """A login of `lamps`."""

    async def secret_hash(self, integration: str) -> str | None:
        return secret_hash(SECRET) if integration == "lamps" else None


def doorkeeper(*applications, told: list | None = None) -> Doorkeeper:
    def refused(claimed: Caller, reason: str) -> None:
        if told is not None:
            told.append((claimed.address, reason))

    return Doorkeeper(
        FakeDevices("Ab1", UUID_SN, "a.b", "integration.doors"),
        FakeApplications(*applications),
        FakeIntegrations(),
        refused,
    )


async def test_a_device_comes_in_under_its_registered_sn():
    """Whatever the case it logs in with."""
    assert await doorkeeper().admit("aB1", "k", HOST) == Admission("Ab1", device_permissions("Ab1"))


async def test_an_application_comes_in_to_hear_its_tenant():
    """By client id and secret."""
    expected = Admission(CLIENT_ID, application_permissions(CLIENT_ID, "t1"))

    assert await doorkeeper(application()).admit(CLIENT_ID, SECRET, HOST) == expected


async def test_an_application_with_an_allow_list_comes_from_its_networks():
    """The address is the connection's, also when it is unknown."""
    told: list = []
    known = doorkeeper(application(allowed_addresses=("192.0.2.0/24",)), told=told)

    assert await known.admit(CLIENT_ID, SECRET, HOST)
    assert await known.admit(CLIENT_ID, SECRET, "::ffff:192.0.2.1")
    assert await known.admit(CLIENT_ID, SECRET, "") is None
    assert await known.admit(CLIENT_ID, "wrong", "") is None
    assert told == [("", "address")]


async def test_an_integration_comes_in_as_itself():
    """By its id and its secret; its subjects all carry the id."""
    expected = Admission("integration.lamps", integration_permissions("lamps"))

    assert await doorkeeper().admit("integration.lamps", SECRET, HOST) == expected


async def test_an_sn_in_the_form_of_a_uuid_is_still_an_sn():
    """When no application has it."""
    admitted = await doorkeeper(application()).admit(UUID_SN, "k", HOST)

    assert admitted == Admission(UUID_SN, device_permissions(UUID_SN))


@pytest.mark.parametrize(
    ("user", "password", "known"),
    [
        ("Ab1", "wrong", application()),
        ("nobody", "k", application()),
        ("", "k", application()),
        ("Ab1", "", application()),
        ("a.b", "k", application()),
        (CLIENT_ID, "wrong", application()),
        ("integration.lamps", "wrong", application()),
        ("integration.doors", SECRET, application()),
        ("integration.doors", "k", application()),
        ("integration.", SECRET, application()),
        ("lamps", SECRET, application()),
        (CLIENT_ID, SECRET, application(events=False)),
        (CLIENT_ID, SECRET, application(allowed_addresses=("192.0.2.2", "2001:db8::/32"))),
    ],
)
async def test_everybody_else_stays_outside(user, password, known):
    """Wrong keys and secrets, unknown SNs and integrations, blanks, SNs that widen a permission,
    applications without events or from elsewhere."""
    assert await doorkeeper(known).admit(user, password, HOST) is None
