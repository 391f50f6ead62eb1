"""Tenants' collections: how to find their documents, and which ids these contain.

The order is the order of a tenant's archive, and of its restore. Some collections must precede
others: services detach devices from missing applications, so `applications` precedes `devices`. The
tenant itself is last, so that nobody can sign in before. A test reads a running platform and fails
for a collection that this module does not list.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from deploy.backup import relocation
from deploy.backup.relocation import Document, Relocation


class Lookup(Enum):
    """Ways to find a tenant's documents that have no tenant field."""

    THING = "id of a device or custom entity"
    THING_PREFIX = "key that starts with the id of a device or custom entity (decision 0001)"
    SERIAL = "SNs of the tenant's devices and RPS records"
    SHAPE = "shapes of the tenant's devices, and their parents"


@dataclass(frozen=True)
class Row:
    """A row of `TENANT_COLLECTIONS`: one collection with documents of tenants."""

    name: str
    """`{service}.{collection}`; `history_*` means the collections of all weeks."""
    lookup: str | Lookup
    """The field that names the tenant, or another way to find its documents."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Id sequence of each field that holds ids."""
    rewrite: Callable[[Document, Relocation], None] | None = None
    """Rewrites further fields of a document after `ids` were shifted."""
    shared: bool = False
    """Whether the target may already have equal documents, which are then skipped."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern of the matching collection names."""
        return re.compile(re.escape(self.name).replace(r"\*", r"\d+"))


TENANT_COLLECTIONS = (
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
        "device.tagged_entities",
        "tenant",
        {"tags": "device.entity_tags"},
        relocation.rewrite_tagged_entity,
    ),
    Row("device.alarm_rules", "tenant", {"_id": "device.alarm_rules", "device": "device.things"}),
    Row(
        "device.alarm_states",
        "tenant",
        {"rule": "device.alarm_rules", "device": "device.things", "alarm": "device.alarms"},
        relocation.rewrite_alarm_state,
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
        relocation.rewrite_alarm,
    ),
    Row("device.rps", "tenant", {"applicationId": "auth.applications"}),
    Row("device.serials", Lookup.SERIAL),
    Row("device.shapes", Lookup.SHAPE, shared=True),
    Row(
        "device.things",
        "tenant",
        {"_id": "device.things", "flow": "workflow.flows", "userId": "auth.users"},
        relocation.rewrite_custom_entity,
    ),
    Row("device.latest", Lookup.THING, {"_id": "device.things"}),
    Row("device.latest_parts", Lookup.THING_PREFIX, rewrite=relocation.rewrite_history_key),
    Row("device.profiles", Lookup.THING, {"_id": "device.things"}),
    Row("device.history_*", Lookup.THING_PREFIX, rewrite=relocation.rewrite_history_key),
    Row("device.frames", Lookup.THING_PREFIX, rewrite=relocation.rewrite_frame),
    Row("device.device_events", Lookup.THING_PREFIX, rewrite=relocation.rewrite_history_key),
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
        relocation.rewrite_canvas,
    ),
    Row(
        "management.canvases",
        "tenant",
        {
            "_id": "management.dashboards",
            "widgets.id": "management.dashboards",
            "deviceIds": "device.things",
        },
        relocation.rewrite_attached_canvas,
    ),
    Row(
        "management.home_dashboards",
        "tenant",
        {"_id": "auth.users", "dashboard": "management.dashboards"},
    ),
    Row("management.resources", "tenant", {"usedBy": "management.dashboards"}),
    Row("management.openapi_accounts", "_id", rewrite=relocation.rewrite_openapi_account),
    Row("management.openapi_links", "_id.tenant"),
    Row("management.network_servers", "_id.tenant", rewrite=relocation.rewrite_network_server),
    Row("management.network_routes", "_id.tenant"),
    Row("management.network_downlinks", "tenant"),
    Row(
        "workflow.flows",
        "tenant",
        {"_id": "workflow.flows", "userId": "auth.users"},
        relocation.rewrite_design,
    ),
    Row(
        "workflow.flow_versions",
        "tenant",
        {"_id.flow": "workflow.flows"},
        relocation.rewrite_design,
    ),
    Row(
        "workflow.alarm_notifications",
        "tenant",
        {
            "_id": "auth.users",
            "settings.device_ids": "device.things",
            "settings.group_ids": "device.device_groups",
        },
        relocation.rewrite_notifications,
    ),
    Row(
        "workflow.flow_secrets",
        "tenant",
        {"flows": "workflow.flows"},
        relocation.rewrite_flow_secret,
    ),
    Row(
        "workflow.credentials",
        "tenant",
        {"_id": "workflow.credentials"},
        relocation.rewrite_credential,
    ),
    Row(
        "workflow.runs",
        "tenant",
        {"_id": "workflow.runs", "flow": "workflow.flows", "cause.userId": "auth.users"},
    ),
    Row("workflow.hooks", "tenant", {"_id": "workflow.flows"}, relocation.rewrite_deployed_flow),
    Row("workflow.timers", "tenant", {"_id": "workflow.flows"}, relocation.rewrite_deployed_flow),
    Row(
        "workflow.deployments",
        "tenant",
        {"_id": "workflow.flows"},
        relocation.rewrite_deployed_flow,
    ),
    Row("workflow.unsettled", "tenant", {"_id": "workflow.flows"}),
    Row("auth.grants", "tenant", {"role": "auth.roles"}, relocation.rewrite_grant),
    Row("auth.audit", "tenant", rewrite=relocation.rewrite_audit_entry),
    Row("auth.device_credentials", "tenant", {"deviceId": "device.things"}),
    Row("auth.console_clients", "tenant"),
    Row("auth.tenants", "_id"),
)

_SHORT_LIVED = "expires within a day"
_INSTALLATION = "belongs to the installation"

EXCLUDED = {
    "auth.integration_logins": _INSTALLATION,
    "auth.revocations": _SHORT_LIVED,
    "device.backups": _INSTALLATION,
    "device.streams": _INSTALLATION,
    "device.connections": "connections do not move",
    "device.presence_turn": _INSTALLATION,
    "device.alarm_steps": _SHORT_LIVED,
    "device.command_turns": _SHORT_LIVED,
    "device.uplinks_seen": _SHORT_LIVED,
    "device.imports": "expires within a week",
    "device.import_rows": "expires within a week",
    "device.redecodes": "a re-decode job starts again at the target",
    "device.gaps": "the target finds gaps again",
    "device.healing": "the target starts again",
    "device.ledger": _INSTALLATION,
    "device.removed": _SHORT_LIVED,
    "management.integrations": _INSTALLATION,
    "management.openapi_commands": _SHORT_LIVED,
    "workflow.alarm_notices": "the source sends these notifications",
    "workflow.deployment_changes": _SHORT_LIVED,
    "workflow.replicas": _INSTALLATION,
    **{
        f"{service}.{name}": _INSTALLATION
        for service in ("auth", "device", "management", "workflow")
        for name in ("outbox", "counters", "leases", "migrations")
    },
}
"""Collections that a tenant's archive does not contain, with the reason."""


def find_collection(name: str) -> Row | None:
    """Return the entry of `{service}.{collection}`; None if it does not move."""
    return next((each for each in TENANT_COLLECTIONS if each.pattern.fullmatch(name)), None)
