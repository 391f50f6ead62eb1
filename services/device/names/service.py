"""Describes and counts devices for the services that list them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Protocol

from libs.common.contracts.names import (
    MOST_DEVICES,
    CountDevices,
    DescribedDevices,
    DescribeDevices,
    DeviceCount,
    DeviceCounts,
)
from libs.common.errors import InvalidInput
from services.device.members.models import ModelKey

ORDERS = {"id": "_id", "name": "name", "createdAt": "createdAt"}
"""What devices may be sorted by, and where it is stored."""


@dataclass(frozen=True, slots=True)
class Group:
    """Devices of one integration and model."""

    integration: str
    model: ModelKey
    devices: int


class Store(Protocol):
    """Where devices are kept."""

    async def describe(
        self, wanted: DescribeDevices, order: list[tuple[str, int]]
    ) -> DescribedDevices:
        """The devices that are wanted, and how many match."""

    async def groups(self, tenant: str) -> list[Group]:
        """The devices of a tenant, counted by integration and model."""


class Members(Protocol):
    """The entities of a model."""

    @property
    def members(self) -> Sized:
        """One for each."""


class Models(Protocol):
    """Knows the entities of models."""

    async def of(self, tenant: str, keys: Iterable[ModelKey]) -> Mapping[ModelKey, Members]:
        """The members of each model; none for what is gone."""


class DeviceNames:
    """Answers `describe_devices` and `count_devices`."""

    def __init__(self, store: Store, models: Models) -> None:
        self._store = store
        self._models = models

    async def describe(self, wanted: DescribeDevices) -> DescribedDevices:
        """The devices that are wanted; raise `InvalidInput` for what cannot be asked."""
        if not 1 <= wanted.limit <= MOST_DEVICES:
            raise InvalidInput(f"must be from 1 to {MOST_DEVICES}", field="limit")
        if wanted.skip < 0:
            raise InvalidInput("must not be negative", field="skip")
        order: dict[str, int] = {}
        for name, way in wanted.order:
            if name not in ORDERS or way not in (1, -1):
                raise InvalidInput(f"must be {', '.join(ORDERS)} with 1 or -1", field="order")
            order.setdefault(ORDERS[name], way)
        order.setdefault("_id", -1)
        return await self._store.describe(wanted, list(order.items()))

    async def count(self, wanted: CountDevices) -> DeviceCounts:
        """Devices and their entities by integration.

        Entities are counted by product: as many as the TSL has members, times its devices.
        """
        groups = await self._store.groups(wanted.tenant)
        members = await self._models.of(wanted.tenant, {group.model for group in groups})
        counts: dict[str, DeviceCount] = defaultdict(lambda: DeviceCount(0, 0))
        for group in groups:
            count = counts[group.integration]
            count.devices += group.devices
            count.entities += group.devices * len(members[group.model].members)
        return DeviceCounts(dict(counts))
