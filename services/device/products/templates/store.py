"""Libraries in MongoDB: `template_libraries`, `{_id: tenant, head, content}`.

`head` is JSON, `content` the archive.
"""

import msgspec

from libs.common.store.mongo import Database
from services.device.products.templates.schemas import KeptLibrary


class LibraryStore:
    """Reads and writes libraries: one for each tenant."""

    def __init__(self, database: Database) -> None:
        self._libraries = database["template_libraries"]

    async def put(self, tenant: str, library: KeptLibrary, content: bytes) -> None:
        """Keep a library in the place of the one there is."""
        row = {"head": msgspec.json.encode(library), "content": content}
        await self._libraries.replace_one({"_id": tenant}, row, upsert=True)

    async def delete(self, tenant: str) -> None:
        """Forget the library of a tenant."""
        await self._libraries.delete_one({"_id": tenant})

    async def head(self, tenant: str) -> KeptLibrary | None:
        """What there is to be had."""
        found = await self._libraries.find_one({"_id": tenant}, {"head": 1})
        return _read(found["head"]) if found else None

    async def whole(self, tenant: str) -> tuple[KeptLibrary, bytes] | None:
        """The same, and the archive that it is of."""
        found = await self._libraries.find_one({"_id": tenant})
        return (_read(found["head"]), found["content"]) if found else None


_read = msgspec.json.Decoder(KeptLibrary).decode
