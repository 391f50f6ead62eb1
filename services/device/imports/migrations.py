"""The collections of imports."""

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, create_missing

SECONDS = 7 * 24 * 3600
"""For which imports are kept."""


async def _make_imports(database: Database) -> None:
    for name in ("imports", "import_rows"):
        await create_missing(database, name)
        await database[name].create_index("createdAt", name="age", expireAfterSeconds=SECONDS)
    await database["imports"].create_index([("state", 1), ("_id", 1)], name="state")
    await database["imports"].create_index([("tenant", 1), ("_id", -1)], name="tenant")
    await database["import_rows"].create_index([("import", 1), ("row", 1)], name="row", unique=True)
    await database["import_rows"].create_index(
        [("import", 1), ("outcome", 1), ("row", 1)], name="outcome"
    )


MIGRATIONS = [Migration(900, "imports of devices", _make_imports)]
