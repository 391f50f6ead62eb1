"""Indexes of the service's database, in the order they came."""

from services.device.commands.migrations import MIGRATIONS as COMMANDS
from services.device.devices import MIGRATIONS as DEVICES
from services.device.entities.migrations import MIGRATIONS as ENTITIES
from services.device.integrations.migrations import MIGRATIONS as INTEGRATIONS
from services.device.products import MIGRATIONS as PRODUCTS
from services.device.reports.migrations import MIGRATIONS as REPORTS
from services.device.rps import MIGRATIONS as RPS

MIGRATIONS = sorted(
    [*PRODUCTS, *DEVICES, *RPS, *ENTITIES, *INTEGRATIONS, *REPORTS, *COMMANDS],
    key=lambda migration: migration.number,
)
