"""What every tenant begins with: the role `super_admin` and the menu tree.

The seeds of the default tenant have the ids that the notes give; others get ids of their own.
"""

from libs.common.identity.functions import Function
from services.auth.accounts.menus import Menu, MenuType

SUPER_ADMIN_ID = 1
"""The id of the role `super_admin` in the default tenant."""
_FUNCTIONS = frozenset(Function)


def _menu(identity: int, code: str, parent: int | None = None) -> Menu:
    """What is a `Function` is a FUNCTION, the pages are MENUs."""
    kind = MenuType.FUNCTION if code in _FUNCTIONS else MenuType.MENU
    return Menu(id=identity, code=code, name=code, type=kind, parent_id=parent)


MENUS = (
    _menu(1000, "dashboard"),
    _menu(1001, "dashboard.view", 1000),
    _menu(1002, "dashboard.add", 1000),
    _menu(1003, "dashboard.edit", 1000),
    _menu(1004, "dashboard.delete", 1000),
    _menu(2000, "device"),
    _menu(2001, "device.view", 2000),
    _menu(2002, "device.add", 2000),
    _menu(2003, "device.edit", 2000),
    _menu(2004, "device.delete", 2000),
    _menu(2005, "device.group_manage", 2000),
    _menu(2100, "product"),
    _menu(2101, "product.view", 2100),
    _menu(2102, "product.manage", 2100),
    _menu(7000, "entity"),
    _menu(3000, "entity_custom", 7000),
    _menu(3001, "entity_custom.view", 3000),
    _menu(3002, "entity_custom.add", 3000),
    _menu(3003, "entity_custom.edit", 3000),
    _menu(3004, "entity_custom.delete", 3000),
    _menu(4000, "entity_data", 7000),
    _menu(4001, "entity_data.view", 4000),
    _menu(4002, "entity_data.edit", 4000),
    _menu(4003, "entity_data.export", 4000),
    _menu(5000, "workflow"),
    _menu(5001, "workflow.view", 5000),
    _menu(5002, "workflow.add", 5000),
    _menu(5004, "workflow.edit", 5000),
    _menu(5006, "workflow.delete", 5000),
    _menu(6000, "integration"),
    _menu(6001, "integration.view", 6000),
    _menu(7900, "settings"),
    _menu(8000, "credentials", 7900),
    _menu(8001, "credentials.view", 8000),
    _menu(8002, "credentials.edit", 8000),
    _menu(9000, "tag"),
    _menu(9001, "entity_tag.view", 9000),
    _menu(9002, "entity_tag.manage", 9000),
)
"""Parents stand before their children."""
