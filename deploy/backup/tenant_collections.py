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
class TenantCollection:
    """A collection with documents of tenants, how to find them, and their ids."""

    name: str
    """`{service}.{collection}`; `history_*` means the collections of all weeks."""
    lookup: str | Lookup
    """The field that names the tenant, or another way to find its documents."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Id sequence by field path, for each field that holds ids."""
    rewrite: Callable[[Document, Relocation], None] | None = None
    """Rewrites further fields of a document after `ids` were shifted."""
    shared: bool = False
    """Whether the target may already have equal documents, which are then skipped."""

    @property
    def name_pattern(self) -> re.Pattern[str]:
        """Return the pattern that `{service}.{collection}` must match."""
        return re.compile(re.escape(self.name).replace(r"\*", r"\d+"))


TENANT_COLLECTIONS = (
    TenantCollection("auth.applications", "tenant", {"_id": "auth.applications"}),
    TenantCollection("auth.roles", "tenant", {"_id": "auth.roles", "menus": "auth.menus"}),
    TenantCollection("auth.menus", "tenant", {"_id": "auth.menus", "parentId": "auth.menus"}),
    TenantCollection("auth.users", "tenant", {"_id": "auth.users", "roles": "auth.roles"}),
    TenantCollection("device.products", "_id.tenant"),
    TenantCollection("device.tsls", "_id.tenant"),
    TenantCollection("device.codecs", "_id.tenant"),
    TenantCollection("device.template_libraries", "_id"),
    TenantCollection("device.product_usage", "_id.tenant"),
    TenantCollection("device.members", "_id.tenant"),
    TenantCollection(
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
    TenantCollection("device.device_groups", "tenant", {"_id": "device.device_groups"}),
    TenantCollection("device.entity_tags", "tenant", {"_id": "device.entity_tags"}),
    TenantCollection(
        "device.tagged_entities",
        "tenant",
        {"tags": "device.entity_tags"},
        relocation.rewrite_tagged_entity,
    ),
    TenantCollection(
        "device.alarm_rules", "tenant", {"_id": "device.alarm_rules", "device": "device.things"}
    ),
    TenantCollection(
        "device.alarm_states",
        "tenant",
        {"rule": "device.alarm_rules", "device": "device.things", "alarm": "device.alarms"},
        relocation.rewrite_alarm_state,
    ),
    TenantCollection(
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
    TenantCollection("device.rps", "tenant", {"applicationId": "auth.applications"}),
    TenantCollection("device.serials", Lookup.SERIAL),
    TenantCollection("device.shapes", Lookup.SHAPE, shared=True),
    TenantCollection(
        "device.things",
        "tenant",
        {"_id": "device.things", "flow": "workflow.flows", "userId": "auth.users"},
        relocation.rewrite_custom_entity,
    ),
    TenantCollection("device.latest", Lookup.THING, {"_id": "device.things"}),
    TenantCollection(
        "device.latest_parts", Lookup.THING_PREFIX, rewrite=relocation.rewrite_history_key
    ),
    TenantCollection("device.profiles", Lookup.THING, {"_id": "device.things"}),
    TenantCollection(
        "device.history_*", Lookup.THING_PREFIX, rewrite=relocation.rewrite_history_key
    ),
    TenantCollection("device.frames", Lookup.THING_PREFIX, rewrite=relocation.rewrite_frame),
    TenantCollection(
        "device.device_events", Lookup.THING_PREFIX, rewrite=relocation.rewrite_history_key
    ),
    TenantCollection(
        "device.commands",
        "tenant",
        {
            "_id": "device.tasks",
            "thingId": "device.things",
            "applicationId": "auth.applications",
            "userId": "auth.users",
        },
    ),
    TenantCollection(
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
    TenantCollection(
        "management.canvases",
        "tenant",
        {
            "_id": "management.dashboards",
            "widgets.id": "management.dashboards",
            "deviceIds": "device.things",
        },
        relocation.rewrite_attached_canvas,
    ),
    TenantCollection(
        "management.home_dashboards",
        "tenant",
        {"_id": "auth.users", "dashboard": "management.dashboards"},
    ),
    TenantCollection("management.resources", "tenant", {"usedBy": "management.dashboards"}),
    TenantCollection(
        "management.openapi_accounts", "_id", rewrite=relocation.rewrite_openapi_account
    ),
    TenantCollection("management.openapi_links", "_id.tenant"),
    TenantCollection(
        "management.network_servers", "_id.tenant", rewrite=relocation.rewrite_network_server
    ),
    TenantCollection("management.network_routes", "_id.tenant"),
    TenantCollection("management.network_downlinks", "tenant"),
    TenantCollection(
        "workflow.flows",
        "tenant",
        {"_id": "workflow.flows", "userId": "auth.users"},
        relocation.rewrite_design,
    ),
    TenantCollection(
        "workflow.flow_versions",
        "tenant",
        {"_id.flow": "workflow.flows"},
        relocation.rewrite_design,
    ),
    TenantCollection(
        "workflow.alarm_notifications",
        "tenant",
        {
            "_id": "auth.users",
            "settings.device_ids": "device.things",
            "settings.group_ids": "device.device_groups",
        },
        relocation.rewrite_notification_settings,
    ),
    TenantCollection(
        "workflow.flow_secrets",
        "tenant",
        {"flows": "workflow.flows"},
        relocation.rewrite_flow_secret,
    ),
    TenantCollection(
        "workflow.credentials",
        "tenant",
        {"_id": "workflow.credentials"},
        relocation.rewrite_credential,
    ),
    TenantCollection(
        "workflow.runs",
        "tenant",
        {"_id": "workflow.runs", "flow": "workflow.flows", "cause.userId": "auth.users"},
    ),
    TenantCollection(
        "workflow.hooks", "tenant", {"_id": "workflow.flows"}, relocation.rewrite_deployed_flow
    ),
    TenantCollection(
        "workflow.timers", "tenant", {"_id": "workflow.flows"}, relocation.rewrite_deployed_flow
    ),
    TenantCollection(
        "workflow.deployments",
        "tenant",
        {"_id": "workflow.flows"},
        relocation.rewrite_deployed_flow,
    ),
    TenantCollection("workflow.unsettled", "tenant", {"_id": "workflow.flows"}),
    TenantCollection("auth.grants", "tenant", {"role": "auth.roles"}, relocation.rewrite_grant),
    TenantCollection("auth.audit", "tenant", rewrite=relocation.rewrite_audit_entry),
    TenantCollection("auth.device_credentials", "tenant", {"deviceId": "device.things"}),
    TenantCollection("auth.console_clients", "tenant"),
    TenantCollection("auth.tenants", "_id"),
)

_SHORT_LIVED_REASON = "expires within a day"
_INSTALLATION_REASON = "belongs to the installation"

EXCLUSION_REASON_BY_COLLECTION = {
    "auth.integration_logins": _INSTALLATION_REASON,
    "auth.revocations": _SHORT_LIVED_REASON,
    "device.backups": _INSTALLATION_REASON,
    "device.streams": _INSTALLATION_REASON,
    "device.connections": "connections do not move",
    "device.presence_turn": _INSTALLATION_REASON,
    "device.alarm_steps": _SHORT_LIVED_REASON,
    "device.command_turns": _SHORT_LIVED_REASON,
    "device.uplinks_seen": _SHORT_LIVED_REASON,
    "device.imports": "expires within a week",
    "device.import_rows": "expires within a week",
    "device.redecodes": "a re-decode job starts again at the target",
    "device.gaps": "the target finds gaps again",
    "device.healing": "the target starts again",
    "device.ledger": _INSTALLATION_REASON,
    "device.removed": _SHORT_LIVED_REASON,
    "management.integrations": _INSTALLATION_REASON,
    "management.openapi_commands": _SHORT_LIVED_REASON,
    "workflow.alarm_notices": "the source sends these notifications",
    "workflow.deployment_changes": _SHORT_LIVED_REASON,
    "workflow.replicas": _INSTALLATION_REASON,
    **{
        f"{service}.{name}": _INSTALLATION_REASON
        for service in ("auth", "device", "management", "workflow")
        for name in ("outbox", "counters", "leases", "migrations")
    },
}
"""Reason by collection, for collections that a tenant's archive does not contain."""


def find_collection(name: str) -> TenantCollection | None:
    """Return the entry of `{service}.{collection}`; None if it is not archived."""
    return next((each for each in TENANT_COLLECTIONS if each.name_pattern.fullmatch(name)), None)
