"""Who comes in to the bus, with fakes."""

import collections
import time

import pytest

from libs.common.contracts.auth import Connection
from libs.common.contracts.limits import Limits
from libs.common.contracts.mqtt import MqttLoggedIn
from libs.common.errors import TooManyRequests
from libs.common.identity import Caller, HeaderSigner, generate_keys
from libs.common.identity.device_keys import DeviceKeyCopy, device_key_hash, device_principal
from libs.common.identity.header import (
    PASS_LIFETIME_SECONDS,
    CertificatePassSigner,
    CertificatePassVerifier,
)
from libs.common.tls import PeerCertificate
from services.auth.bus_credentials import derive_application_credential, derive_credential
from services.auth.callout.admission_registry import AdmissionResult
from services.auth.callout.login_authorizer import LoginAuthorizer
from services.auth.callout.permissions import (
    Admission,
    application_permissions,
    device_permissions,
    integration_permissions,
)
from services.auth.client_secrets import hash_secret
from tests.unit.auth.fakes import CLIENT_ID, SECRET, FakeApplications, application

HOST = "192.0.2.1"
KEY = derive_credential(device_key_hash("k"))
PRIVATE, PUBLIC = generate_keys()
PASSES = CertificatePassVerifier(PUBLIC)
UUID_SN = "9b2f4c1e-1111-4222-8333-0000000000ff"


class FakeDevices:
    """Devices with the key `k`."""

    def __init__(self, *sns: str) -> None:
        self.sns = {sn.upper(): sn for sn in sns}
        self.rejected_logins = self
        self.noted: list[tuple[str, str, str]] = []

    def record(self, device: DeviceKeyCopy, wrong: str, over: str) -> None:
        self.noted.append((device.sn, wrong, over))

    async def log_in(self, sn: str, key: str, over: str):
        stored = self.sns.get(sn.upper())
        if stored is None or key != "k":
            return None
        return DeviceKeyCopy(stored, 1, "t1", device_key_hash("k"))

    async def log_in_with_certificate(self, certificate: PeerCertificate, over: str):
        stored = self.sns.get(certificate.subject.upper())
        copy = DeviceKeyCopy(stored or "", 1, "t1", device_key_hash("k"), ["0A"])
        return copy if copy.matches_certificate(certificate) else None


class FakeIntegrations:
    """A login of `lamps`."""

    async def find_secret_hash(self, integration: str) -> str | None:
        return hash_secret(SECRET) if integration == "lamps" else None


class FakeRegistry:
    """So many log-ins of each principal; the client id `taken` is another device's."""

    def __init__(self, most: int) -> None:
        self.left = collections.defaultdict(lambda: most)

    async def admit(self, admission, connection, client_id) -> AdmissionResult | None:
        if client_id == "taken":
            return None
        self.left[admission.name] -= 1
        return (
            AdmissionResult(kept=1) if self.left[admission.name] >= 0 else AdmissionResult(wait=1.0)
        )


class FakeConnections:
    """There is room for everybody."""

    async def has_room(self, user, connection, kept, most) -> bool:
        return True


class FakeLimits:
    """The platform's limits."""

    def get(self, tenant: str) -> Limits:
        return Limits()


class FakeClients:
    """One credential of the tenant `t1`."""

    async def login(self, access_key: str, secret: str | None = None) -> MqttLoggedIn:
        right = (access_key, secret) == ("gate@t1", "k")
        return MqttLoggedIn("t1", "digest") if right else MqttLoggedIn()


class FakeRefusals:
    """Notes where refused log-ins came from, and why."""

    def __init__(self, told: list | None) -> None:
        self._told = [] if told is None else told

    def enqueue(self, claimed: Caller, reason: str) -> None:
        self._told.append((claimed.address, reason))


class Door:
    """The authorizer, asked about one connection after another."""

    def __init__(self, keeper: LoginAuthorizer) -> None:
        self._keeper = keeper

    async def admit(self, user, password, address, mqtt_id=None) -> Admission | None:
        return await self._keeper.admit(user, password, address, Connection("S", 1), mqtt_id)


def authorizer(*applications, told: list | None = None, log_ins: int = 100) -> Door:
    return Door(
        LoginAuthorizer(
            FakeDevices("Ab1", UUID_SN, "a.b", "integration.doors"),
            FakeApplications(*applications),
            FakeIntegrations(),
            FakeRegistry(log_ins),
            FakeConnections(),
            FakeLimits(),
            FakeRefusals(told),
            PASSES,
            FakeClients(),
        )
    )


async def test_a_device_comes_in_under_its_registered_sn():
    """Its key allows topics with this spelling."""
    expected = Admission("Ab1", device_permissions("Ab1", mqtt=False), KEY, "t1")

    assert await authorizer().admit("Ab1", "k", HOST) == expected


async def test_a_client_of_a_tenant_uses_topics_below_its_own_prefix():
    """It may use MQTT only, and its name is no SN."""
    found = await authorizer().admit("gate@t1", "k", HOST, "page")

    assert found is not None
    assert (found.name, found.tenant, found.shared) == ("flows.gate@t1", "t1", True)
    assert found.permissions.publish == ("beaver-iot.gate@t1.>",)
    assert found.permissions.subscribe == ("beaver-iot.gate@t1.>", "$MQTT.sub.>")
    for user, secret, mqtt_id in (
        ("gate@t1", "k", None),
        ("gate@t1", "x", "page"),
        ("gate@t2", "k", "page"),
        ("ga*te@t1", "k", "page"),
    ):
        assert await authorizer().admit(user, secret, HOST, mqtt_id) is None


async def test_a_device_comes_in_with_the_gateways_pass_for_its_certificate():
    """Its connection is the certificate's: it ends with that, and not with the key."""
    shown = CertificatePassSigner(PRIVATE).sign(PeerCertificate("Ab1", "0A"))
    expected = Admission("Ab1", device_permissions("Ab1", mqtt=True), derive_credential("0A"), "t1")

    assert await authorizer().admit("Ab1", shown, HOST, "Ab1") == expected


@pytest.mark.parametrize(
    ("user", "subject", "serial"),
    [("Ab1", "Ab1", "0B"), ("a.b", "Ab1", "0A"), ("ab1", "ab1", "0A"), ("ab1", "Ab1", "0A")],
)
async def test_a_pass_is_of_use_to_its_own_device_only(user, subject, serial):
    """Not a revoked certificate, not another device's, not another spelling of the SN."""
    shown = CertificatePassSigner(PRIVATE).sign(PeerCertificate(subject, serial))

    assert await authorizer().admit(user, shown, HOST, user) is None


async def test_a_pass_is_the_gateways_and_fresh():
    """Signed with another key, cut, or half a minute old, it is nothing."""
    certificate = PeerCertificate("Ab1", "0A")
    good = CertificatePassSigner(PRIVATE).sign(certificate)
    old = CertificatePassSigner(
        PRIVATE, clock=lambda: time.time() - PASS_LIFETIME_SECONDS - 1
    ).sign(certificate)
    foreign = CertificatePassSigner(generate_keys()[0]).sign(certificate)
    header = HeaderSigner(PRIVATE).sign(device_principal("Ab1", "t1"))

    for shown in (old, foreign, good[:-4], f"certificate.{header}", "certificate.", "certificate"):
        assert await authorizer().admit("Ab1", shown, HOST, "Ab1") is None


@pytest.mark.parametrize("mqtt_id", [None, "Ab1", "ab1", "anything"])
@pytest.mark.parametrize("spelling", ["ab1", "AB1", "aB1"])
async def test_a_device_stays_outside_under_another_spelling(spelling, mqtt_id):
    """Messages under its topics would be lost silently."""
    assert await authorizer().admit(spelling, "k", HOST, mqtt_id) is None


async def test_an_application_comes_in_to_hear_its_tenant():
    """By client id and secret."""
    permissions = application_permissions(CLIENT_ID, "t1")
    made = derive_application_credential(application())
    expected = Admission(f"app.{CLIENT_ID}", permissions, made, "t1")

    assert await authorizer(application()).admit(CLIENT_ID, SECRET, HOST) == expected


async def test_an_application_with_an_allow_list_comes_from_its_networks():
    """The address is the connection's, also when it is unknown."""
    told: list = []
    known = authorizer(application(allowed_addresses=("192.0.2.0/24",)), told=told)

    assert await known.admit(CLIENT_ID, SECRET, HOST)
    assert await known.admit(CLIENT_ID, SECRET, "::ffff:192.0.2.1")
    assert await known.admit(CLIENT_ID, SECRET, "") is None
    assert await known.admit(CLIENT_ID, "wrong", "") is None
    assert told == [("", "address")]


async def test_an_integration_comes_in_as_itself():
    """By its id and its secret; its subjects all carry the id."""
    permissions = integration_permissions("lamps")
    expected = Admission("integration.lamps", permissions, derive_credential(hash_secret(SECRET)))

    assert await authorizer().admit("integration.lamps", SECRET, HOST) == expected


async def test_an_sn_in_the_form_of_a_uuid_is_still_an_sn():
    """When no application has it."""
    admitted = await authorizer(application()).admit(UUID_SN, "k", HOST)

    assert admitted == Admission(UUID_SN, device_permissions(UUID_SN, mqtt=False), KEY, "t1")


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
    assert await authorizer(known).admit(user, password, HOST) is None


@pytest.mark.parametrize("mqtt_id", ["AB1", "Ab1", "anything"])
async def test_over_mqtt_a_device_comes_with_an_id_of_its_own(mqtt_id):
    """The id is its SN or free, and its account is that of JetStream."""
    admitted = await authorizer().admit("Ab1", "k", HOST, mqtt_id)

    assert admitted == Admission("Ab1", device_permissions("Ab1", mqtt=True), KEY, "t1")


async def test_a_client_id_of_another_device_is_rejected():
    """The connection would take over the session of the other device."""
    assert await authorizer().admit("Ab1", "k", HOST, "taken") is None


@pytest.mark.parametrize("user", [CLIENT_ID, "integration.lamps"])
async def test_only_devices_come_over_mqtt(user):
    """Applications and integrations have no account with MQTT."""
    assert await authorizer(application()).admit(user, SECRET, HOST, "m") is None


async def test_logins_of_a_device_are_bounded():
    """Beyond the limit the right key is rejected, too; other devices can log in."""
    known = authorizer(application(), log_ins=2)

    for _ in range(2):
        assert await known.admit("Ab1", "k", HOST)
    with pytest.raises(TooManyRequests):
        await known.admit("Ab1", "k", HOST)
    assert await known.admit(CLIENT_ID, SECRET, HOST)


async def test_wrong_keys_do_not_use_up_the_log_ins_of_a_device():
    """A client without the key cannot lock the device out."""
    known = authorizer(application(), log_ins=1)

    await known.admit("Ab1", "wrong", HOST)
    assert await known.admit("Ab1", "k", HOST)
