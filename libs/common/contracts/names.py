"""How owners describe their resources to `auth`, which lists them for roles.

Each owner answers with what it has: an unknown id is left out. `ids` absent means all of the
tenant (for "undistributed" lists); `keyword` matches names in part, without regard to case.
"""

import msgspec

DEVICES = "rpc.device.describe_devices"
DEVICE_COUNTS = "rpc.device.count_devices"
GROUPS = "rpc.device.describe_groups"
INTEGRATIONS = "rpc.management.describe_integrations"
DASHBOARDS = "rpc.management.describe_dashboards"
CANVAS_OF_DEVICE = "rpc.management.canvas_of_device"
FLOWS = "rpc.workflow.describe_flows"

MOST_DEVICES = 500
"""Most devices of one answer, so that it fits into a message whatever their names are."""
HIDDEN_INTEGRATION = "system"
"""Owner of custom entities and of flows' services; lists of roles do not show it."""


class DescribeDevices(msgspec.Struct, rename="camel"):
    """`describe_devices`: devices of `ids`, of `integrations` or of `groups`; all without any."""

    tenant: str
    ids: list[int] | None = None
    integrations: list[str] | None = None
    groups: list[int] | None = None
    exclude_ids: list[int] = []
    exclude_integrations: list[str] = []
    exclude_groups: list[int] = []
    keyword: str = ""
    keyword_integrations: list[str] = []
    """Integrations whose names match the keyword: all their devices do, too."""
    skip: int = 0
    limit: int = MOST_DEVICES
    """At most `MOST_DEVICES`; who wants more asks again."""
    counted: bool = True
    """Whether the total is wanted."""
    order: list[tuple[str, int]] = []
    """Criteria: `name`, `createdAt` or `id` with 1 or -1; then by falling id."""


class DescribedDevice(msgspec.Struct, rename="camel", omit_defaults=True):
    """One device."""

    id: int
    name: str
    integration: str
    created_at: int
    """ms."""
    user_id: int | None = None
    """Who added it, when a user did."""
    group: int | None = None


class DescribedDevices(msgspec.Struct, rename="camel"):
    """Answer of `describe_devices`; `total` counts all that match, 0 when it is not wanted."""

    devices: list[DescribedDevice]
    total: int


class DescribeGroups(msgspec.Struct):
    """`describe_groups`: which of `ids` there are."""

    tenant: str
    ids: list[int]


class DescribedGroups(msgspec.Struct):
    """Answer of `describe_groups`."""

    ids: list[int]


class CountDevices(msgspec.Struct):
    """`count_devices`: by integration."""

    tenant: str


class DeviceCount(msgspec.Struct, rename="camel"):
    """Devices and entities (of the devices) of one integration."""

    devices: int
    entities: int


class DeviceCounts(msgspec.Struct):
    """Answer of `count_devices`: integration → counts; absent means none."""

    counts: dict[str, DeviceCount]


class DescribeIntegrations(msgspec.Struct):
    """`describe_integrations`."""

    tenant: str
    ids: list[str] | None = None
    keyword: str = ""


class DescribedIntegration(msgspec.Struct, rename="camel", omit_defaults=True):
    """One integration; the counts include its devices' entities."""

    id: str
    name: str
    devices: int = 0
    entities: int = 0


class DescribedIntegrations(msgspec.Struct):
    """Answer of `describe_integrations`, by name."""

    integrations: list[DescribedIntegration]


class DescribeDashboards(msgspec.Struct):
    """`describe_dashboards`."""

    tenant: str
    ids: list[int] | None = None
    keyword: str = ""


class DescribedDashboard(msgspec.Struct, rename="camel", omit_defaults=True):
    """One dashboard."""

    id: int
    name: str
    created_at: int
    user_id: int | None = None


class DescribedDashboards(msgspec.Struct):
    """Answer of `describe_dashboards`, by name."""

    dashboards: list[DescribedDashboard]


class AskCanvas(msgspec.Struct, rename="camel"):
    """`canvas_of_device`: it is made when there is none."""

    tenant: str
    device_id: int


class DeviceCanvas(msgspec.Struct):
    """Answer of `canvas_of_device`, and of `GET /device/{device_id}/canvas`."""

    canvas_id: str
    name: str


class DescribeFlows(msgspec.Struct):
    """`describe_flows`: which of `ids` there are."""

    tenant: str
    ids: list[int]


class DescribedFlows(msgspec.Struct):
    """Answer of `describe_flows`."""

    ids: list[int]


READ_RESOURCE = "rpc.management.read_resource"
PART = 512 * 1024
"""Bytes of a part, which fits into a message."""


class ReadResource(msgspec.Struct):
    """`read_resource`: a part of the file of a tenant that a URL names."""

    tenant: str
    url: str
    offset: int = 0


class ResourcePart(msgspec.Struct):
    """Answer of `read_resource`; the part is empty at the end."""

    name: str
    type: str
    """Media type of the whole."""
    content: bytes
