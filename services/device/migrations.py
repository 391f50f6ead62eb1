"""Indexes of the service's database, in the order they came."""

from services.device.alarms.migrations import MIGRATIONS as ALARMS
from services.device.commands.migrations import MIGRATIONS as COMMANDS
from services.device.groups.migrations import MIGRATIONS as GROUPS
from services.device.imports.migrations import MIGRATIONS as IMPORTS
from services.device.members.migrations import MIGRATIONS as ENTITIES
from services.device.reports.migrations import MIGRATIONS as REPORTS
from services.device.things.migrations import DEVICE_MIGRATIONS as DEVICES
from services.device.things.migrations import PRODUCT_MIGRATIONS as PRODUCTS

MIGRATIONS = sorted(
    [*PRODUCTS, *DEVICES, *GROUPS, *ENTITIES, *REPORTS, *COMMANDS, *IMPORTS, *ALARMS],
    key=lambda migration: migration.number,
)
