"""Collaborators of the device service that keep a log of what they were asked."""

from collections.abc import Sequence
from typing import Any

from libs.common.contracts.auth import DeviceCredentials, DeviceRef, Done
from libs.common.errors import Unavailable
from libs.common.identity import Principal, PrincipalKind
from libs.common.tsl import TslDocument
from services.device.commands.model import FailureReason
from services.device.things.model import Device
from services.device.things.product_model import Product
from services.device.things.serial_numbers import SerialHolder, SerialTaken

MINE = Principal(PrincipalKind.APPLICATION, "default", "1", name="mine")

Log = list[tuple[Any, ...]]


class FakeStore:
    """Devices in memory; `race` makes the SN taken between the look and the insert."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.devices: dict[int, Device] = {}
        self.race: SerialHolder | None = None
        self.looks = 0
        self.vanish_after_looks: int | None = None

    async def find_holder(self, key: str) -> tuple[SerialHolder | None, Device | None]:
        for device in self.devices.values():
            if device.sn_key == key:
                return "device", device
        raced = self.race if ("insert",) in self.log else None
        return raced, None

    async def find(self, tenant: str, device_id: int, application_id: int | None) -> Device | None:
        self.looks += 1
        if self.vanish_after_looks is not None and self.looks > self.vanish_after_looks:
            return None
        return self.devices.get(device_id)

    async def find_deletable(
        self, tenant: str, device_id: int, application_id: int
    ) -> Device | None:
        return self.devices.get(device_id)

    async def insert(self, devices: Sequence[Device]) -> None:
        self.log.append(("insert",))
        if self.race:
            raise SerialTaken
        self.devices |= {device.id: device for device in devices}

    async def delete(
        self, tenant: str, device_id: int, application_id: int | None
    ) -> Device | None:
        self.log.append(("delete", device_id))
        return self.devices.pop(device_id, None)


class NoLatest:
    """Nothing has been reported."""

    async def times(self, thing_ids: list[int]) -> dict[int, int]:
        return {}


class FakeIds:
    """Counts from 1."""

    def __init__(self) -> None:
        self.last = 0

    async def allocate(self) -> int:
        self.last += 1
        return self.last


class FakeCatalogue:
    """One product for all."""

    async def choose_for_device(self, tenant: str, model: str | None, serial: str) -> Product:
        return Product(
            model=model or "TH-1",
            name="x",
            sn_prefixes=[],
            device_type="COMMON",
            current_version="v1",
            versions=["v1"],
        )

    async def list_versions(self, tenant: str, model: str) -> list[str]:
        return ["v1"]

    async def find_tsl_or_open_tsl(self, tenant: str, model: str, version: str) -> TslDocument:
        return TslDocument(version=version)


class FakeProvisioner:
    """Accepts everything, and cannot send when `down`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.down = False

    async def validate(self, device: Device, config: dict[str, Any]) -> None:
        self.log.append(("validate", device.id))

    async def provision(self, device: Device, config: dict[str, Any]) -> None:
        if self.down:
            raise Unavailable("no commands today")
        self.log.append(("provision", device.id))

    async def delete_profile(self, thing_id: int) -> None:
        self.log.append(("delete_profile", thing_id))


class FakeEnding:
    """Ends commands, and notes of which devices."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def cancel_all(self, device: Device, reason: FailureReason) -> None:
        self.log.append(("end tasks", device.id))


class FakeAuth:
    """Issues the same key always; `down_from` is the revocation that fails first."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.down_from: int | None = None
        self.revocations = 0

    async def call(self, subject: str, device: DeviceRef, _: type) -> DeviceCredentials | Done:
        if subject == "rpc.auth.issue_device_credentials":
            self.log.append(("issue", device.device_id))
            return DeviceCredentials(device.sn, "key")
        self.revocations += 1
        if self.down_from is not None and self.revocations >= self.down_from:
            raise Unavailable("auth does not answer")
        self.log.append(("revoke", device.device_id))
        return Done()


class NoOrphans:
    """Every application is there."""

    async def freed(self, device: Device) -> bool:
        return False
