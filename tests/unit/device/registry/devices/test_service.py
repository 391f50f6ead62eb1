"""The logic of devices where something goes wrong in the middle."""

from dataclasses import dataclass

import pytest

from libs.common.errors import Conflict, InvalidInput, NotFound, Unavailable
from services.device.members.device_keys import DeviceCredentialsClient
from services.device.registry.devices.ownership import DeviceRemover
from services.device.registry.devices.schemas import AddDevice
from services.device.registry.devices.service import DeviceService
from services.device.things.serial_numbers import SerialHolder
from tests.unit.device.registry.devices.fakes import (
    MINE,
    FakeAuth,
    FakeCatalogue,
    FakeEnding,
    FakeIds,
    FakeProvisioner,
    FakeStore,
    Log,
    NoLatest,
    NoOrphans,
)


@dataclass
class Bench:
    """The service on fakes."""

    log: Log
    store: FakeStore
    provisioner: FakeProvisioner
    auth: FakeAuth
    service: DeviceService


@pytest.fixture
def bench() -> Bench:
    log: Log = []
    store, provisioner = FakeStore(log), FakeProvisioner(log)
    auth = FakeAuth(log)
    credentials = DeviceCredentialsClient(auth)

    service = DeviceService(
        store,
        NoLatest(),
        FakeIds(),
        FakeCatalogue(),
        provisioner,
        credentials,
        DeviceRemover(credentials, FakeEnding(log)),
        NoOrphans(),
    )
    return Bench(log, store, provisioner, auth, service)


def body(**more: object) -> AddDevice:
    return AddDevice(sn_dev_eui="SN1", name="x", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("holder", "code"),
    [("rps", "rps_record_exists"), ("device", "device_already_exists")],
)
async def test_an_sn_taken_in_between_says_by_what(
    bench: Bench, holder: SerialHolder, code: str
) -> None:
    """The insert fails, and the reason is looked up."""
    bench.store.race = holder
    with pytest.raises(Conflict) as refusal:
        await bench.service.add(MINE, body())
    assert refusal.value.code == code


async def test_a_configuration_is_checked_before_and_sent_after_the_insert(bench: Bench) -> None:
    """A bad one adds nothing, a good one finds the device."""
    await bench.service.add(MINE, body(auto_provision=True, config={}))
    assert bench.log == [("validate", 1), ("insert",), ("provision", 1)]


async def test_a_device_is_added_though_provisioning_fails(bench: Bench) -> None:
    """It waits; the addition cannot be taken back and must not look as if it had failed."""
    bench.provisioner.down = True
    added = await bench.service.add(MINE, body(auto_provision=True, config={}))
    assert added.device_id == 1
    assert bench.store.devices[1].rps_status == "WAITING"


@pytest.mark.parametrize("given", [{"sn": "SN1"}, {"dev_eui": "24E124136B502217"}])
async def test_other_names_of_the_sn_are_refused(bench: Bench, given: dict[str, str]) -> None:
    """They might contradict snDevEUI."""
    with pytest.raises(InvalidInput) as refusal:
        await bench.service.add(MINE, body(**given))
    assert refusal.value.field == "snDevEUI"


async def test_a_key_ends_before_and_after_its_device(bench: Bench) -> None:
    """Before: a crash leaves no key without a device. After: one issued meanwhile ends too."""
    await bench.service.add(MINE, body())
    assert await bench.service.delete(MINE, 1) == "SN1"
    assert bench.log[1:] == [("revoke", 1), ("delete", 1), ("revoke", 1), ("end tasks", 1)]


async def test_a_device_stays_while_its_key_cannot_be_ended(bench: Bench) -> None:
    """503, and the client tries again."""
    await bench.service.add(MINE, body())
    bench.auth.down_from = 1
    with pytest.raises(Unavailable):
        await bench.service.delete(MINE, 1)
    assert 1 in bench.store.devices


async def test_a_deleted_device_is_answered_though_the_second_revocation_fails(
    bench: Bench,
) -> None:
    """The first one did what matters."""
    await bench.service.add(MINE, body())
    bench.auth.down_from = 2
    assert await bench.service.delete(MINE, 1) == "SN1"


async def test_a_key_for_a_device_that_went_meanwhile_is_ended(bench: Bench) -> None:
    """404, and nothing opens anything."""
    await bench.service.add(MINE, body())
    bench.store.vanish_after_looks = 1
    with pytest.raises(NotFound):
        await bench.service.issue_credentials(MINE, 1)
    assert bench.log[1:] == [("issue", 1), ("revoke", 1)]
