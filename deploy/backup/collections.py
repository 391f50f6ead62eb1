"""Each collection has one row: how a tenant's documents are found, and which ids are in them.

The order is that of an archive of a tenant, in which it is moved in: what a sweep would miss
comes before what depends on it (`applications` before the devices that are freed without one),
and the tenant itself is last: until then nobody signs in to it. A test reads a running platform
and fails on a collection without a row.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from deploy.backup import rewriting
from deploy.backup.rewriting import Document, Moving


class By(Enum):
    """How a tenant's documents are found, where no field names it."""

    THING = "id of a device or custom entity"
    THING_RANGE = "key that begins with such an id (decision 0001)"
    SERIAL = "SNs of its devices and RPS records"
    SHAPE = "shapes that its devices name, and those above them"


@dataclass(frozen=True)
class Row:
    """A collection whose documents belong to tenants."""

    name: str
    """`{service}.{collection}`; `history_*` is each week."""
    found: str | By
    """The field that names the tenant, or how else."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Sequences by the fields that have ids of theirs."""
    change: Callable[[Document, Moving], None] | None = None
    """What else is rewritten when it is moved."""
    shared: bool = False
    """Documents that the target has already are the same ones."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Of the collection names that it is about."""
        return re.compile(re.escape(self.name).replace(r"\*", r"\d+"))


ROWS = (
    Row("auth.applications", "tenant", {"_id": "auth.applications"}),
    Row("auth.roles", "tenant", {"_id": "auth.roles", "menus": "auth.menus"}),
    Row("auth.menus", "tenant", {"_id": "auth.menus", "parentId": "auth.menus"}),
    Row("auth.users", "tenant", {"_id": "auth.users", "roles": "auth.roles"}),
    Row("device.products", "_id.tenant"),
    Row("device.tsls", "_id.tenant"),
    Row("device.codecs", "_id.tenant"),
    Row("device.template_libraries", "_id"),
    Row("device.product_usage", "_id.tenant"),
    Row("device.members", "_id.tenant"),
    Row(
        "device.devices",
        "tenant",
        {
            "_id": "device.things",
            "application.applicationId": "auth.applications",
            "removedFrom": "auth.applications",
            "userId": "auth.users",
            "group": "device.device_groups",
        },
    ),
    Row("device.device_groups", "tenant", {"_id": "device.device_groups"}),
    Row("device.entity_tags", "tenant", {"_id": "device.entity_tags"}),
    Row(
        "device.tagged_entities", "tenant", {"tags": "device.entity_tags"}, rewriting.tagged_entity
    ),
    Row("device.alarm_rules", "tenant", {"_id": "device.alarm_rules", "device": "device.things"}),
    Row(
        "device.alarm_states",
        "tenant",
        {"rule": "device.alarm_rules", "device": "device.things", "alarm": "device.alarms"},
        rewriting.alarm_state,
    ),
    Row(
        "device.alarms",
        "tenant",
        {
            "_id": "device.alarms",
            "rule": "device.alarm_rules",
            "flow": "workflow.flows",
            "device": "device.things",
        },
        rewriting.alarm,
    ),
    Row("device.rps", "tenant", {"applicationId": "auth.applications"}),
    Row("device.serials", By.SERIAL),
    Row("device.shapes", By.SHAPE, shared=True),
    Row(
        "device.things",
        "tenant",
        {"_id": "device.things", "flow": "workflow.flows", "userId": "auth.users"},
        rewriting.own_thing,
    ),
    Row("device.latest", By.THING, {"_id": "device.things"}),
    Row("device.latest_parts", By.THING_RANGE, change=rewriting.key_of_thing),
    Row("device.profiles", By.THING, {"_id": "device.things"}),
    Row("device.history_*", By.THING_RANGE, change=rewriting.key_of_thing),
    Row("device.frames", By.THING_RANGE, change=rewriting.frame),
    Row("device.device_events", By.THING_RANGE, change=rewriting.key_of_thing),
    Row(
        "device.commands",
        "tenant",
        {
            "_id": "device.tasks",
            "thingId": "device.things",
            "applicationId": "auth.applications",
            "userId": "auth.users",
        },
    ),
    Row(
        "management.dashboards",
        "tenant",
        {
            "_id": "management.dashboards",
            "userId": "auth.users",
            "widgets.id": "management.dashboards",
            "deviceIds": "device.things",
        },
        rewriting.canvas,
    ),
    Row(
        "management.canvases",
        "tenant",
        {
            "_id": "management.dashboards",
            "widgets.id": "management.dashboards",
            "deviceIds": "device.things",
        },
        rewriting.attached_canvas,
    ),
    Row(
        "management.home_dashboards",
        "tenant",
        {"_id": "auth.users", "dashboard": "management.dashboards"},
    ),
    Row("management.resources", "tenant", {"usedBy": "management.dashboards"}),
    Row("management.openapi_accounts", "_id", change=rewriting.account),
    Row("management.openapi_links", "_id.tenant"),
    Row("management.network_servers", "_id.tenant", change=rewriting.network_server),
    Row("management.network_routes", "_id.tenant"),
    Row("management.network_downlinks", "tenant"),
    Row(
        "workflow.flows",
        "tenant",
        {"_id": "workflow.flows", "userId": "auth.users"},
        rewriting.design,
    ),
    Row("workflow.flow_versions", "tenant", {"_id.flow": "workflow.flows"}, rewriting.design),
    Row(
        "workflow.alarm_notifications",
        "tenant",
        {
            "_id": "auth.users",
            "settings.device_ids": "device.things",
            "settings.group_ids": "device.device_groups",
        },
        rewriting.notifications,
    ),
    Row("workflow.flow_secrets", "tenant", {"flows": "workflow.flows"}, rewriting.flow_secret),
    Row("workflow.credentials", "tenant", {"_id": "workflow.credentials"}, rewriting.credential),
    Row(
        "workflow.runs",
        "tenant",
        {"_id": "workflow.runs", "flow": "workflow.flows", "cause.userId": "auth.users"},
    ),
    Row("workflow.hooks", "tenant", {"_id": "workflow.flows"}, rewriting.deployed),
    Row("workflow.timers", "tenant", {"_id": "workflow.flows"}, rewriting.deployed),
    Row("workflow.deployments", "tenant", {"_id": "workflow.flows"}, rewriting.deployed),
    Row("workflow.unsettled", "tenant", {"_id": "workflow.flows"}),
    Row("auth.grants", "tenant", {"role": "auth.roles"}, rewriting.grant),
    Row("auth.audit", "tenant", change=rewriting.audit),
    Row("auth.device_credentials", "tenant", {"deviceId": "device.things"}),
    Row("auth.console_clients", "tenant"),
    Row("auth.tenants", "_id"),
)

_PASSING = "is over within a day"
_INSTALLATION = "is the installation's"

STAY = {
    "auth.integration_logins": _INSTALLATION,
    "auth.revocations": _PASSING,
    "device.connections": "its connections end with the move",
    "device.presence_turn": _INSTALLATION,
    "device.alarm_steps": _PASSING,
    "device.command_turns": _PASSING,
    "device.uplinks_seen": _PASSING,
    "device.imports": "is over within a week",
    "device.import_rows": "is over within a week",
    "device.redecodes": "is begun anew where frames are to be read again",
    "device.gaps": "are found anew where the frames are",
    "device.healing": "begins anew where the frames are",
    "device.ledger": _INSTALLATION,
    "device.removed": _PASSING,
    "management.integrations": _INSTALLATION,
    "management.openapi_commands": _PASSING,
    "workflow.alarm_notices": "are told where the alarms were",
    "workflow.deployment_changes": _PASSING,
    "workflow.replicas": _INSTALLATION,
    **{
        f"{service}.{name}": _INSTALLATION
        for service in ("auth", "device", "management", "workflow")
        for name in ("outbox", "counters", "leases", "migrations")
    },
}
"""What does not move with a tenant, and why; a backup of the whole has it all."""


def row_of(name: str) -> Row | None:
    """The row of a collection (`{service}.{collection}`); None: it stays."""
    return next((row for row in ROWS if row.pattern.fullmatch(name)), None)
