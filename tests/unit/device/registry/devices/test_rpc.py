"""Devices for other services, with what is listed given."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libs.common.contracts.names import (
    CountDevices,
    DescribeDevices,
    DeviceCount,
    DeviceCounts,
)
from services.device.registry.devices.rpc import DeviceSummaryRpc
from services.device.things.device_queries import MemberSetCount
from services.device.things.device_search import PageQuery
from services.device.things.model import MemberSetKey

LAMP = MemberSetKey("LAMP", "1.0")
DOOR = MemberSetKey("DOOR", "1.0")
GONE = MemberSetKey("GONE", "1.0")


@dataclass
class Members:
    members: tuple[int, ...]


class Lists:
    def __init__(self, groups: list[MemberSetCount]) -> None:
        self.order: list[tuple[str, int]] = []
        self.integrations: Sequence[str] = ()
        self._groups = groups

    async def find_documents(
        self, query: PageQuery, fields: Mapping[str, int], *, counted: bool
    ) -> tuple[list[dict[str, Any]], int]:
        self.order, self.integrations = query.order, query.integrations
        return [], 0

    async def count_member_sets_by_integration(self, tenant: str) -> list[MemberSetCount]:
        return self._groups


class MemberSetDirectory:
    async def find(
        self, tenant: str, keys: Iterable[MemberSetKey]
    ) -> Mapping[MemberSetKey, Members]:
        known = {LAMP: Members((1, 2, 3)), DOOR: Members((1,)), GONE: Members(())}
        return {key: known[key] for key in keys}


class Integrations:
    async def list_by_name(self) -> list[str]:
        return ["ping", "direct"]


async def test_entities_are_counted_by_model() -> None:
    """Members times devices, whatever the number of devices is."""
    lists = Lists(
        [
            MemberSetCount("direct", LAMP, 1_000_000),
            MemberSetCount("direct", DOOR, 2),
            MemberSetCount("ping", LAMP, 1),
            MemberSetCount("ping", GONE, 5),
        ]
    )

    found = await DeviceSummaryRpc(lists, MemberSetDirectory(), Integrations()).count(
        CountDevices("default")
    )

    assert found == DeviceCounts(
        {"direct": DeviceCount(1_000_002, 3_000_002), "ping": DeviceCount(6, 3)}
    )


async def test_an_order_ends_in_the_id() -> None:
    """So that pages do not overlap; a criterion counts once."""
    lists = Lists([])
    names = DeviceSummaryRpc(lists, MemberSetDirectory(), Integrations())

    await names.describe(DescribeDevices("default"))
    assert lists.order == [("_id", -1)]
    order = [("name", 1), ("createdAt", -1), ("name", -1)]
    await names.describe(DescribeDevices("default", order=order))
    assert lists.order == [("name", 1), ("createdAt", -1), ("_id", -1)]
    await names.describe(DescribeDevices("default", order=[("id", 1)]))
    assert lists.order == [("_id", 1)]


async def test_an_order_by_integration_knows_the_names() -> None:
    """Devices do not store them."""
    lists = Lists([])
    names = DeviceSummaryRpc(lists, MemberSetDirectory(), Integrations())
    await names.describe(DescribeDevices("default", order=[("integrationName", -1)]))
    assert lists.order == [("integrationName", -1), ("_id", -1)]
    assert lists.integrations == ["ping", "direct"]
