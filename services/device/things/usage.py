"""Keeps a product, or a version's content, from going while a device is being tied to it.

A transaction sees a snapshot, so "no device uses it" may be untrue by the time of its
commit. Each product has a few slots: tying a device writes one of them, ending what the
device relies on writes all, and two writers of one slot cannot both commit. Several slots,
so that many devices can be added at a time.
"""

from collections.abc import Iterable
from zlib import crc32

from libs.common.store.mongo import Database, Session
from libs.common.things import GENERIC
from services.device.things.errors import unknown_model
from services.device.things.model import Device

SLOTS = 16


class ProductUsage:
    """The slots of all products."""

    def __init__(self, database: Database) -> None:
        self._slots = database["product_usage"]

    async def tie(self, tenant: str, model: str, devices: Iterable[str], session: Session) -> bool:
        """Tie devices (their SN keys) to the product; False when the product is gone."""
        slots = {crc32(device.encode()) % SLOTS for device in devices}
        keys = [_key(tenant, model, slot) for slot in slots]
        written = await self._slots.update_many(
            {"_id": {"$in": keys}}, {"$inc": {"ties": 1}}, session=session
        )
        return bool(written.matched_count == len(keys))

    async def tie_devices(self, devices: Iterable[Device], session: Session) -> None:
        """Tie devices to their products; raise `InvalidInput` when one of these is gone."""
        models: dict[tuple[str, str], list[str]] = {}
        for device in devices:
            if device.model != GENERIC:
                models.setdefault((device.tenant, device.model), []).append(device.sn_key)
        for (tenant, model), keys in models.items():
            if not await self.tie(tenant, model, keys, session):
                raise unknown_model(model)

    async def seal(self, tenant: str, model: str, session: Session) -> None:
        """Let nobody tie a device while this transaction runs; makes slots that are missing."""
        for slot in range(SLOTS):
            await self._slots.update_one(
                {"_id": _key(tenant, model, slot)},
                {"$inc": {"seals": 1}},
                upsert=True,
                session=session,
            )

    async def end(self, tenant: str, model: str, session: Session) -> None:
        """Take the slots away with the product."""
        keys = [_key(tenant, model, slot) for slot in range(SLOTS)]
        await self._slots.delete_many({"_id": {"$in": keys}}, session=session)


def _key(tenant: str, model: str, slot: int) -> dict[str, str | int]:
    return {"tenant": tenant, "model": model, "slot": slot}
