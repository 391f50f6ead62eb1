"""Indexes of the service's database, in the order they came."""

from services.device.alarms.migrations import MIGRATIONS as ALARMS
from services.device.commands.migrations import MIGRATIONS as COMMANDS
from services.device.devices.migrations import MIGRATIONS as DEVICES
from services.device.groups.migrations import MIGRATIONS as GROUPS
from services.device.imports.migrations import MIGRATIONS as IMPORTS
from services.device.members.migrations import MIGRATIONS as ENTITIES
from services.device.products.migrations import MIGRATIONS as PRODUCTS
from services.device.reports.migrations import MIGRATIONS as REPORTS

MIGRATIONS = sorted(
    [*PRODUCTS, *DEVICES, *GROUPS, *ENTITIES, *REPORTS, *COMMANDS, *IMPORTS, *ALARMS],
    key=lambda migration: migration.number,
)
