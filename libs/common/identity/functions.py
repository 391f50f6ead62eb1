"""Permissions of roles: the function codes of the management API.

Each is the code of a menu entry of type FUNCTION. An operation lists functions; one is
sufficient. A super-admin has all functions.
"""

from enum import StrEnum


class Function(StrEnum):
    """Function codes `{page}.{verb}`, which existing consoles know."""

    DASHBOARD_VIEW = "dashboard.view"
    DASHBOARD_ADD = "dashboard.add"
    DASHBOARD_EDIT = "dashboard.edit"
    DASHBOARD_DELETE = "dashboard.delete"
    DEVICE_VIEW = "device.view"
    DEVICE_ADD = "device.add"
    DEVICE_EDIT = "device.edit"
    DEVICE_DELETE = "device.delete"
    DEVICE_GROUP_MANAGE = "device.group_manage"
    PRODUCT_VIEW = "product.view"
    PRODUCT_MANAGE = "product.manage"
    ENTITY_CUSTOM_VIEW = "entity_custom.view"
    ENTITY_CUSTOM_ADD = "entity_custom.add"
    ENTITY_CUSTOM_EDIT = "entity_custom.edit"
    ENTITY_CUSTOM_DELETE = "entity_custom.delete"
    ENTITY_DATA_VIEW = "entity_data.view"
    ENTITY_DATA_EDIT = "entity_data.edit"
    ENTITY_DATA_EXPORT = "entity_data.export"
    CREDENTIALS_VIEW = "credentials.view"
    CREDENTIALS_EDIT = "credentials.edit"
    ENTITY_TAG_VIEW = "entity_tag.view"
    ENTITY_TAG_MANAGE = "entity_tag.manage"
    WORKFLOW_VIEW = "workflow.view"
    WORKFLOW_ADD = "workflow.add"
    WORKFLOW_EDIT = "workflow.edit"
    WORKFLOW_DELETE = "workflow.delete"
    INTEGRATION_VIEW = "integration.view"


COMMAND_FUNCTIONS = frozenset(
    {
        Function.ENTITY_DATA_EDIT,
        Function.DEVICE_EDIT,
        Function.DASHBOARD_EDIT,
        Function.WORKFLOW_EDIT,
    }
)
"""Each of these functions permits to set values and call services (decision 0048)."""
VIEWER_COMMAND_FUNCTIONS = frozenset(
    {
        Function.DASHBOARD_VIEW,
        Function.DEVICE_VIEW,
        Function.INTEGRATION_VIEW,
        Function.WORKFLOW_ADD,
    }
)
"""Functions that also suffice if the tenant's setting "Viewers may command devices" is on."""
