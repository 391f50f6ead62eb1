"""Reads of a search; integration tests check its results."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from libs.common.http.console import Page, Sort
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.grants import SUPER_ADMIN_GRANTS, Grants
from libs.common.integrations.client import ALWAYS_KNOWN_INTEGRATIONS, IntegrationSummary
from services.device.entities.schemas import EntityResponse, SearchEntities
from services.device.entities.search import EntitySearch
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member, MemberSet
from services.device.things.device_search import Condition
from services.device.things.model import ListedDevice, MemberSetKey

ADMIN = Principal(PrincipalKind.USER, "default", "1", super_admin=True)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEVICES = 1000
SIZES = {"FIVE": 5, "SEVEN": 7}


def model(size: int) -> MemberSet:
    return MemberSet(
        Member(number=one, path=f"p{one}", name=f"P{one}", type="PROPERTY", value_type="LONG")
        for one in range(1, size + 1)
    )


class Walk(NamedTuple):
    skip: int


class FakeStore:
    """A thousand devices of alternating models, newest first."""

    def __init__(self, *models: str) -> None:
        self.models = models
        self.walks: list[Walk] = []
        self.read = 0
        self.lately: dict[MemberSetKey, int] = {}
        """What was counted a moment ago, when that is not so any more."""

    def _device(self, number: int) -> ListedDevice:
        return ListedDevice(
            id=number,
            tenant="default",
            integration="direct",
            identifier=f"SN{number}",
            sn=f"SN{number}",
            name=f"device {number}",
            model=self.models[number % len(self.models)],
            tsl_version="v1",
            created_at=NOW,
            updated_at=NOW,
        )

    async def count_by_member_set(
        self, tenant: str, conditions: Sequence[Condition], *, fresh: bool
    ) -> dict[MemberSetKey, int]:
        if self.lately and not fresh:
            return self.lately
        share = DEVICES // len(self.models)
        return {MemberSetKey(one, "v1"): share for one in self.models}

    async def list_integrations(self, tenant: str) -> list[str]:
        return ["direct"]

    async def iterate(
        self, tenant: str, conditions: Any, order: Any, *, skip: int, **_: Any
    ) -> AsyncGenerator[ListedDevice, None]:
        self.walks.append(Walk(skip))
        for number in range(DEVICES - skip, 0, -1):
            self.read += 1
            yield self._device(number)


class FakeModels:
    async def find(self, tenant: str, keys: Any) -> dict[MemberSetKey, MemberSet]:
        return {key: model(SIZES[key.model]) for key in keys}


class NoEntities:
    async def find_by_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Entity]:
        return {}

    async def find_things(self, tenant: str, ids: Any) -> dict[int, EntityThing]:
        return {}

    async def find_non_device_things(self, tenant: str, condition: Condition) -> list[EntityThing]:
        return []


class NothingNew:
    async def ensure_for_tenant(self, tenant: str, integrations: Iterable[str] = ()) -> None:
        pass


class BuiltIn:
    async def list_summaries(self) -> dict[str, IntegrationSummary]:
        return ALWAYS_KNOWN_INTEGRATIONS


class Everything:
    async def read(self, principal: Principal) -> Grants:
        return SUPER_ADMIN_GRANTS


class NoGroups:
    async def find_names(self, tenant: str, groups: Any) -> dict[int, str]:
        return {}


class NoTags:
    async def find_tags(self, tenant: str, entities: Any) -> dict[int, Any]:
        return {}


class NoValues:
    async def of(self, things: Any) -> dict[int, Any]:
        return {}


async def page(store: FakeStore, number: int, size: int, **asked: Any) -> Page[EntityResponse]:
    search = EntitySearch(
        store,
        FakeModels(),
        NoEntities(),
        Everything(),
        BuiltIn(),
        NothingNew(),
        NoGroups(),
        NoTags(),
        NoValues(),
        NoValues(),
    )
    body = SearchEntities(page_size=size, page_number=number, **asked)
    found = await search.search(ADMIN, body)
    assert isinstance(found.around, Page)
    return replace(found.around, content=[row async for row in found.rows])


async def test_the_first_page_reads_as_many_devices_as_it_shows():
    """Ten entities of devices with five each take two devices of a thousand."""
    store = FakeStore("FIVE")
    found = await page(store, 1, 10)
    assert (found.total, len(found.content), store.read) == (5 * DEVICES, 10, 2)


@pytest.mark.parametrize(("number", "skipped", "read"), [(100, 198, 2), (3, 4, 2), (501, 0, 0)])
async def test_a_late_page_skips_devices_without_reading_them(number: int, skipped: int, read: int):
    """Devices before a page are skipped when all have equally many entities."""
    store = FakeStore("FIVE")
    found = await page(store, number, 10)
    assert store.read == read
    assert [walk.skip for walk in store.walks] == ([skipped] if read else [])
    assert len(found.content) == (10 if read else 0)


async def test_devices_with_different_members_are_counted_one_by_one():
    """Devices with different numbers of entities are counted one by one."""
    store = FakeStore("FIVE", "SEVEN")
    found = await page(store, 2, 6)
    assert found.total == (5 + 7) * DEVICES // 2
    assert [walk.skip for walk in store.walks] == [0]
    ids = [int(row.entity_id) for row in found.content]
    everything = [
        device * 8192 + number
        for device in (DEVICES, DEVICES - 1, DEVICES - 2)
        for number in range(5 if device % 2 == 0 else 7, 0, -1)
    ]
    assert ids == everything[6:12]


async def test_an_order_by_name_walks_only_over_the_names_of_the_page():
    """Names outside the page are not read."""
    store = FakeStore("FIVE")
    found = await page(store, 101, 10, sorts=[Sort("name")])
    assert {row.entity_name for row in found.content} == {"P2"}
    assert (len(store.walks), store.read) == (1, 10)


async def test_a_page_across_two_names_walks_twice():
    """A page across two names reads the end of one and the start of the next."""
    store = FakeStore("FIVE")
    found = await page(store, 2, 999, sorts=[Sort("name", "DESC")])
    names = [row.entity_name for row in found.content]
    assert names == ["P5"] + ["P4"] * 998
    assert [walk.skip for walk in store.walks] == [999, 0]


@pytest.mark.parametrize("sorts", [None, [Sort("name")]])
@pytest.mark.parametrize(
    "lately",
    [
        {MemberSetKey("FIVE", "v1"): DEVICES, MemberSetKey("SEVEN", "v0"): 3},
        {MemberSetKey("SEVEN", "v1"): DEVICES + 5},
    ],
)
async def test_outdated_counts_are_repeated(
    lately: dict[MemberSetKey, int], sorts: list[Sort] | None
):
    """Outdated counts are repeated, so that the page is complete."""
    asked = {} if sorts is None else {"sorts": sorts}
    expected = await page(FakeStore("FIVE", "SEVEN"), 5, 1000, **asked)
    store = FakeStore("FIVE", "SEVEN")
    store.lately = lately
    assert await page(store, 5, 1000, **asked) == expected


async def test_requested_ids_read_no_other_device():
    """Requested ids are looked up directly."""
    store = FakeStore("FIVE")
    assert (await page(store, 1, 10, entity_ids=["8193"])).total == 0
    assert (store.walks, store.read) == ([], 0)
