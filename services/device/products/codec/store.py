"""Codecs in MongoDB: `codecs`, `{_id: {tenant, model}, content}`, the content being JSON."""

import msgspec

from libs.common.store.mongo import Database, Document, Session
from services.device.products.schemas import ProductCodec


class CodecStore:
    """Reads and writes codecs; products and their codecs change together."""

    def __init__(self, database: Database) -> None:
        self._codecs = database["codecs"]

    async def find(self, tenant: str, model: str) -> ProductCodec | None:
        """The codec of a product."""
        found = await self._codecs.find_one({"_id": identity_of(tenant, model)})
        return _read(found["content"]) if found else None

    async def put(self, tenant: str, model: str, codec: ProductCodec, session: Session) -> None:
        """Write a codec in the caller's transaction."""
        identity = identity_of(tenant, model)
        content = {"content": msgspec.json.encode(codec)}
        await self._codecs.replace_one({"_id": identity}, content, upsert=True, session=session)

    async def delete(self, tenant: str, model: str, session: Session) -> bool:
        """Delete a codec in the caller's transaction; False when there is none."""
        gone = await self._codecs.delete_one({"_id": identity_of(tenant, model)}, session=session)
        return bool(gone.deleted_count)


_read = msgspec.json.Decoder(ProductCodec).decode


def identity_of(tenant: str, model: str) -> Document:
    """The `_id` of a product, and of its codec."""
    return {"tenant": tenant, "model": model}
