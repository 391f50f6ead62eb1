"""The migrations of all services, and the chart's job before an upgrade.

`python -m deploy.platform.migrations` migrates one service's database, as the service does at its
start, before any pod of the new version runs. If the migration fails, the upgrade stops and the old
version keeps running.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence

from libs.common.errors import ThingwayError
from libs.common.settings import SettingsInvalid, StoreSettings, load_settings
from libs.common.store.migrations import DatabaseTooNew, Migration, migrate
from libs.common.store.mongo import Mongo, StoreError
from services.auth.migrations import MIGRATIONS as AUTH
from services.device.migrations import MIGRATIONS as DEVICE
from services.management.migrations import MIGRATIONS as MANAGEMENT
from services.workflow.migrations import MIGRATIONS as WORKFLOW

MIGRATIONS_BY_DATABASE: Mapping[str, Sequence[Migration]] = {
    "thingway_auth": AUTH,
    "thingway_device": DEVICE,
    "thingway_management": MANAGEMENT,
    "thingway_workflow": WORKFLOW,
}


async def run() -> None:
    """Migrate the database in the settings, without contracting migrations."""
    settings = load_settings(StoreSettings)
    mongo = Mongo(settings.mongo_url, settings.mongo_database)
    try:
        await migrate(mongo.database, MIGRATIONS_BY_DATABASE[settings.mongo_database])
    finally:
        await mongo.close()


if __name__ == "__main__":
    try:
        asyncio.run(run())
    except (SettingsInvalid, StoreError, ThingwayError, DatabaseTooNew) as error:
        sys.exit(f"migrate: {error}")
