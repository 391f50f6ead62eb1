"""Descriptions of resources, which `auth` requests from their owners to list them for roles.

Unknown ids are omitted from answers. Without `ids`, an answer has all resources of the tenant (for
"undistributed" lists). `keyword` matches parts of names, ignoring case.
"""

import msgspec

DESCRIBE_DEVICES = "rpc.device.describe_devices"
DEVICE_COUNTS = "rpc.device.count_devices"
DESCRIBE_GROUPS = "rpc.device.describe_groups"
DESCRIBE_INTEGRATIONS = "rpc.management.describe_integrations"
DESCRIBE_DASHBOARDS = "rpc.management.describe_dashboards"
GET_DEVICE_CANVAS = "rpc.management.canvas_of_device"
DESCRIBE_FLOWS = "rpc.workflow.describe_flows"

MAX_DESCRIBED_DEVICES = 500
"""Maximum number of devices in an answer, so that it fits into a message with any names."""
HIDDEN_INTEGRATION = "system"
"""Owner of custom entities and of flows' services; not shown in lists of roles."""


class DescribeDevices(msgspec.Struct, rename="camel"):
    """`describe_devices`: devices of `ids`, `integrations` or `groups`; without any, all."""

    tenant: str
    ids: list[int] | None = None
    integrations: list[str] | None = None
    groups: list[int] | None = None
    exclude_ids: list[int] = []
    exclude_integrations: list[str] = []
    exclude_groups: list[int] = []
    keyword: str = ""
    keyword_integrations: list[str] = []
    """Integrations whose names match the keyword: all their devices match too."""
    skip: int = 0
    limit: int = MAX_DESCRIBED_DEVICES
    """At most `MAX_DESCRIBED_DEVICES`; the caller requests further pages."""
    counted: bool = True
    """Whether to count all matching devices."""
    order: list[tuple[str, int]] = []
    """Criteria: `name`, `createdAt` or `id` with 1 or -1; then descending id."""


class DescribedDevice(msgspec.Struct, rename="camel", omit_defaults=True):
    """A device."""

    id: int
    name: str
    integration: str
    created_at: int
    """Time in ms."""
    user_id: int | None = None
    """The user who added it, if any."""
    group: int | None = None


class DescribedDevices(msgspec.Struct, rename="camel"):
    """Answer of `describe_devices`; `total` counts all matches, 0 if not `counted`."""

    devices: list[DescribedDevice]
    total: int


class DescribeGroups(msgspec.Struct):
    """`describe_groups`: return those of `ids` that exist."""

    tenant: str
    ids: list[int]


class DescribedGroups(msgspec.Struct):
    """Answer of `describe_groups`."""

    ids: list[int]


class CountDevices(msgspec.Struct):
    """`count_devices`: count devices and their entities by integration."""

    tenant: str


class DeviceCount(msgspec.Struct, rename="camel"):
    """Numbers of devices of an integration and of their entities."""

    devices: int
    entities: int


class DeviceCounts(msgspec.Struct):
    """Answer of `count_devices`: counts by integration; absent without devices."""

    counts: dict[str, DeviceCount]


class DescribeIntegrations(msgspec.Struct):
    """`describe_integrations`: return names and counts of integrations."""

    tenant: str
    ids: list[str] | None = None
    keyword: str = ""


class DescribedIntegration(msgspec.Struct, rename="camel", omit_defaults=True):
    """An integration; the counts include its devices' entities."""

    id: str
    name: str
    devices: int = 0
    entities: int = 0


class DescribedIntegrations(msgspec.Struct):
    """Answer of `describe_integrations`, sorted by name."""

    integrations: list[DescribedIntegration]


class DescribeDashboards(msgspec.Struct):
    """`describe_dashboards`: return names and creators of dashboards."""

    tenant: str
    ids: list[int] | None = None
    keyword: str = ""


class DescribedDashboard(msgspec.Struct, rename="camel", omit_defaults=True):
    """A dashboard."""

    id: int
    name: str
    created_at: int
    user_id: int | None = None


class DescribedDashboards(msgspec.Struct):
    """Answer of `describe_dashboards`, sorted by name."""

    dashboards: list[DescribedDashboard]


class GetDeviceCanvas(msgspec.Struct, rename="camel"):
    """`canvas_of_device`: return the canvas of a device, and create it if missing."""

    tenant: str
    device_id: int


class DeviceCanvas(msgspec.Struct):
    """Answer of `GET /device/{device_id}/canvas`."""

    canvas_id: str
    name: str


class DescribeFlows(msgspec.Struct):
    """`describe_flows`: return those of `ids` that exist."""

    tenant: str
    ids: list[int]


class DescribedFlows(msgspec.Struct):
    """Answer of `describe_flows`."""

    ids: list[int]


READ_RESOURCE = "rpc.management.read_resource"
FILE_PART_BYTES = 512 * 1024
"""Bytes of a part, which fits into a message."""


class ReadResource(msgspec.Struct):
    """`read_resource`: read a part of a tenant's file by its URL."""

    tenant: str
    url: str
    offset: int = 0


class FilePart(msgspec.Struct):
    """Answer of `read_resource`; the content is empty after the end."""

    name: str
    type: str
    """Media type of the file."""
    content: bytes
