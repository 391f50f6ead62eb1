"""What the logic of entities needs of others, to be given or faked."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Protocol

from services.device.entities.members import MemberSet
from services.device.entities.search.walk import Condition, Walk
from services.device.entities.things import Entity, EntityThing
from services.device.things.model import ListedDevice, ModelKey


class ModelMembers(Protocol):
    """Knows the members of models."""

    async def of(self, tenant: str, keys: Iterable[ModelKey]) -> dict[ModelKey, MemberSet]:
        """The members of each model; none for what is gone."""


class Entities(Protocol):
    """Finds entities, whoever may see them."""

    async def by_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Entity]:
        """The entities of `ids`; what is unknown is missing."""

    async def things(self, tenant: str, ids: Iterable[int]) -> dict[int, EntityThing]:
        """The things of `ids`; what is unknown is missing."""

    async def of_devices(self, tenant: str, devices: Sequence[ListedDevice]) -> list[EntityThing]:
        """The things that devices of a tenant are."""


class OwnThings(Protocol):
    """Knows which integrations there are."""

    async def complete(self, tenant: str, integrations: Iterable[str] = ()) -> None:
        """Make the own things that a tenant lacks, surely those of `integrations`."""


class Values(Protocol):
    """Knows the latest values."""

    async def entries(self, thing_id: int) -> Mapping[str, Any]:
        """Value and time of each property of a thing: `{key: {"v": value, "t": ms}}`."""


class SearchStore(Protocol):
    """What a search needs of its store."""

    async def count(
        self, tenant: str, parts: Sequence[Sequence[Condition]]
    ) -> Mapping[ModelKey, int]:
        """Devices by model, summed over `parts`, each a list of conditions that all hold."""

    async def integrations(self, tenant: str) -> list[str]:
        """The integrations that devices of the tenant belong to."""

    def walk(self, tenant: str, walk: Walk) -> AsyncGenerator[ListedDevice, None]:
        """Devices in order, as many as are asked for."""

    async def others(self, tenant: str, condition: Condition) -> list[EntityThing]:
        """The things that are no devices."""
