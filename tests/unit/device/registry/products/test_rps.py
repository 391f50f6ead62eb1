"""RPS records where others write at the same time, and what a profile URL is."""

import pytest

from libs.common.errors import Conflict, InvalidInput
from libs.common.identity import Principal, PrincipalKind
from services.device.registry.products.rps import RpsRecord, RpsService, SetProfile
from services.device.things.serial_numbers import SerialHolder, SerialTaken

MINE = Principal(PrincipalKind.APPLICATION, "default", "1", name="mine")
URL = "https://example.com/p"

Owner = tuple[str, int]


class FakeStore:
    """One SN whose holder is scripted."""

    def __init__(self, holder: SerialHolder | None = None, owner: Owner | None = None) -> None:
        self.held_by = holder
        self.owner = owner
        self.hidden_changes = 0
        self.url = ""

    async def change_url(self, owner: Owner, key: str, url: str) -> bool:
        if self.hidden_changes:
            self.hidden_changes -= 1
            return False
        if self.held_by == "rps" and self.owner == owner:
            self.url = url
            return True
        return False

    async def insert(self, owner: Owner, sn: str, url: str) -> None:
        if self.held_by:
            raise SerialTaken
        self.held_by, self.owner, self.url = "rps", owner, url

    async def find_holder(self, key: str) -> SerialHolder | None:
        return self.held_by

    async def has_record(self, owner: Owner, key: str) -> bool:
        return self.held_by == "rps" and self.owner == owner

    async def page(
        self, owner: Owner, order: list[tuple[str, int]], skip: int, limit: int
    ) -> tuple[list[RpsRecord], int]:
        return [], 0

    async def delete(self, owner: Owner, key: str) -> bool:
        return False


async def test_a_record_made_meanwhile_by_the_same_application_is_changed() -> None:
    """The insert finds the SN taken, the second attempt finds its own record."""
    store = FakeStore("rps", ("default", 1))
    store.hidden_changes = 1
    assert await RpsService(store).set_profile(MINE, SetProfile(sn="SN1", profile_url=URL))
    assert store.url == URL


@pytest.mark.parametrize(
    ("holder", "code"),
    [("device", "device_already_exists"), ("rps", "rps_record_exists")],
)
async def test_an_sn_with_another_holder_is_refused(holder: SerialHolder, code: str) -> None:
    """A device, or a record of another application."""
    service = RpsService(FakeStore(holder, ("default", 2)))
    with pytest.raises(Conflict) as refusal:
        await service.set_profile(MINE, SetProfile(sn="SN1", profile_url=URL))
    assert refusal.value.code == code


@pytest.mark.parametrize(
    "url", [URL, "HTTP://example.com", "http://127.0.0.1:8080/a?b=c#d", "https://[::1]/x"]
)
async def test_a_profile_url_is_kept_as_it_is(url: str) -> None:
    """http or https, with a host."""
    store = FakeStore()
    await RpsService(store).set_profile(MINE, SetProfile(sn="SN1", profile_url=url))
    assert store.url == url


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "//example.com", "ftp://example.com", "javascript:alert(1)"),
        *("https://", "https://:80", "https://[::1", "https://example.com:x", "https://a:0"),
        *("https://a b", "https://a\n", "https://é.example", "https://a/" + "x" * 2048),
    ],
)
async def test_anything_else_is_refused(url: str) -> None:
    """400 that names the field."""
    with pytest.raises(InvalidInput) as refusal:
        await RpsService(FakeStore()).set_profile(MINE, SetProfile(sn="SN1", profile_url=url))
    assert refusal.value.field == "profileUrl"
