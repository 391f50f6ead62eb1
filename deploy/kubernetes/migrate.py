"""The chart's job before an upgrade: bring one service's database to the new version.

It does what the service does at its start, before there is a pod of the new version: a database
that cannot be migrated ends the upgrade, and the old version goes on.
"""

import asyncio
import sys

from deploy.platform.migrations import MIGRATIONS
from libs.common.errors import ThingwayError
from libs.common.settings import SettingsInvalid, StoreSettings, load
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo, StoreError


async def run() -> None:
    """Migrate; steps that contract are left out."""
    settings = load(StoreSettings)
    mongo = Mongo(settings.mongo_url, settings.mongo_database)
    try:
        await migrate(mongo.database, MIGRATIONS[settings.mongo_database])
    finally:
        await mongo.close()


def main() -> int:
    """Exit code 1 and one line when it cannot be."""
    try:
        asyncio.run(run())
    except (SettingsInvalid, StoreError, ThingwayError) as error:
        sys.stderr.write(f"migrate: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
