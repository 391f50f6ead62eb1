"""Reads what devices are called from the collection `devices`."""

from typing import Any

from libs.common.clock import to_ms
from libs.common.contracts.names import DescribedDevice, DescribedDevices, DescribeDevices
from libs.common.store.mongo import Database, containing
from libs.common.things import DIRECT
from services.device.members.models import model_of
from services.device.names.service import Group

_SHOWN = {"name": 1, "integration": 1, "createdAt": 1, "userId": 1}
_GROUP = {name: f"${name}" for name in ("integration", "model", "tslVersion", "shape")}


class DeviceNameStore:
    """Finds and counts devices of a tenant."""

    def __init__(self, database: Database) -> None:
        self._devices = database["devices"]

    async def describe(
        self, wanted: DescribeDevices, order: list[tuple[str, int]]
    ) -> DescribedDevices:
        """The devices that are wanted, and how many match."""
        query = _query(wanted)
        page = self._devices.find(query, _SHOWN, sort=order, skip=wanted.skip, limit=wanted.limit)
        found = [_described(document) async for document in page]
        total = await self._devices.count_documents(query) if wanted.counted else 0
        return DescribedDevices(found, total)

    async def groups(self, tenant: str) -> list[Group]:
        """The devices of a tenant, counted by integration and model."""
        rows = await self._devices.aggregate(
            [
                {"$match": {"tenant": tenant}},
                {"$group": {"_id": _GROUP, "devices": {"$sum": 1}}},
            ]
        )
        return [
            Group(row["_id"].get("integration", DIRECT), model_of(row["_id"]), row["devices"])
            async for row in rows
        ]


def _query(wanted: DescribeDevices) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = [{"tenant": wanted.tenant}]
    either: list[dict[str, Any]] = []
    if wanted.ids is not None:
        either.append({"_id": {"$in": wanted.ids}})
    if wanted.integrations is not None:
        either.append({"integration": {"$in": wanted.integrations}})
    if either:
        conditions.append({"$or": either})
    if wanted.exclude_ids:
        conditions.append({"_id": {"$nin": wanted.exclude_ids}})
    if wanted.exclude_integrations:
        conditions.append({"integration": {"$nin": wanted.exclude_integrations}})
    if wanted.keyword:
        named: list[dict[str, Any]] = [{"name": containing(wanted.keyword)}]
        named.append({"integration": {"$in": wanted.keyword_integrations}})
        conditions.append({"$or": named})
    return {"$and": conditions}


def _described(document: dict[str, Any]) -> DescribedDevice:
    user = document.get("userId")
    return DescribedDevice(
        id=int(document["_id"]),
        name=document["name"],
        integration=document.get("integration", DIRECT),
        created_at=to_ms(document["createdAt"]),
        user_id=None if user is None else int(user),
    )
