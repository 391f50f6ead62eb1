"""What callers see of re-decode jobs, which cover devices of all owners."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from libs.common.contracts.access import GrantedResources
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.grants import SUPER_ADMIN_GRANTS, Grants
from services.device.lorawan.redecode_service import RedecodeService
from services.device.lorawan.schemas import RedecodeDifference, RedecodeProgress
from services.device.things.directory import GrantedDevices

OWNER_BY_DEVICE = {1: 7, 2: 8, 3: None}
"""The application that owns a device; None means the users."""
USER = Principal(PrincipalKind.USER, "tenant", "5")


class FakeDevices:
    """The devices of `OWNER_BY_DEVICE`."""

    async def find_all(
        self, _: str, ids: Sequence[int], application: int | None = None
    ) -> list[Any]:
        """Return the devices, or those of an application."""
        return [
            SimpleNamespace(id=device, integration="direct", group=None)
            for device in ids
            if application in {None, OWNER_BY_DEVICE[device]}
        ]


def service(grants: Grants) -> RedecodeService:
    """Return the service of a product whose last job has a difference for each device."""
    job = RedecodeProgress(
        state="DONE",
        version="1",
        started=0,
        differences=[RedecodeDifference(device=device, ts=0) for device in OWNER_BY_DEVICE],
    )

    async def find(*_: Any) -> Any:
        return job

    async def read(*_: Any) -> Grants:
        return grants

    granted = GrantedDevices(cast("Any", FakeDevices()), cast("Any", SimpleNamespace(read=read)))
    store, products = SimpleNamespace(find=find), SimpleNamespace(get=find)
    return RedecodeService(cast("Any", store), cast("Any", products), cast("Any", None), granted)


GRANTED = Grants(everything=False, resources=GrantedResources(version=1, devices=frozenset({3})))


@pytest.mark.parametrize(
    ("principal", "grants", "seen"),
    [
        (Principal(PrincipalKind.APPLICATION, "tenant", "7"), GRANTED, [1]),
        (USER, GRANTED, [3]),
        (USER, SUPER_ADMIN_GRANTS, [1, 2, 3]),
    ],
    ids=["application", "user", "super-admin"],
)
async def test_differences_are_of_devices_that_the_caller_may_see(
    principal: Principal, grants: Grants, seen: list[int]
) -> None:
    """Values of other devices are not shown."""
    progress = await service(grants).get(principal, "m")
    assert [difference.device for difference in progress.differences] == seen
