"""The migrations of every service, by database."""

from collections.abc import Mapping, Sequence

from libs.common.store.migrations import Migration
from services.auth.migrations import MIGRATIONS as AUTH
from services.device.migrations import MIGRATIONS as DEVICE
from services.management.migrations import MIGRATIONS as MANAGEMENT
from services.workflow.migrations import MIGRATIONS as WORKFLOW

MIGRATIONS: Mapping[str, Sequence[Migration]] = {
    "thingway_auth": AUTH,
    "thingway_device": DEVICE,
    "thingway_management": MANAGEMENT,
    "thingway_workflow": WORKFLOW,
}
