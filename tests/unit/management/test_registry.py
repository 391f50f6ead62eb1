"""Announcements of integrations, stored in a fake."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from libs.common.contracts.integrations import Manifest
from libs.common.errors import Unavailable
from libs.common.store.mongo import StoreUnavailable
from services.management.integrations import IntegrationRegistry


class Store:
    """Records the writes of a registry."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, ...]] = []

    async def save(self, manifest: Manifest) -> None:
        self.writes.append(("save", manifest.id))

    async def renew_or_save(self, manifests: Sequence[Manifest]) -> list[None]:
        self.writes.append(("renew", *(manifest.id for manifest in manifests)))
        return [None] * len(manifests)


async def test_repeated_announcements_are_stored_by_one_write() -> None:
    """A changed manifest is checked and stored again."""
    store: Any = Store()
    registry = IntegrationRegistry(store)
    lamps, doors = Manifest(id="lamps", name="Lamps"), Manifest(id="doors", name="Doors")
    for manifest in (lamps, doors):
        await registry.announce(manifest.id, manifest)
    await asyncio.gather(registry.announce("lamps", lamps), registry.announce("doors", doors))
    await registry.announce("doors", Manifest(id="doors", name="Gates"))
    assert store.writes == [
        ("save", "lamps"),
        ("save", "doors"),
        ("renew", "lamps", "doors"),
        ("save", "doors"),
    ]


async def test_an_announcement_of_the_process_survives_a_stopped_database() -> None:
    """The host retries after `Unavailable`; another error would end its announcements."""

    class Stopped(Store):
        async def save(self, manifest: Manifest) -> None:
            raise StoreUnavailable("no server")

    store: Any = Stopped()
    with pytest.raises(Unavailable, match="the database does not answer: no server"):
        await IntegrationRegistry(store).announce_from_this_process(
            "lamps", Manifest(id="lamps", name="Lamps")
        )
