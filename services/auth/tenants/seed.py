"""What every tenant begins with: the role `super_admin` and the menu tree (notes, section 3.4)."""

from dataclasses import dataclass

from libs.common.identity.functions import Function

DEFAULT_TENANT = "default"
"""The tenant that is there from the first start on; its seeds have the ids that the notes give."""
SUPER_ADMIN = "super_admin"
"""The role whose users may do everything; it is known by this name."""
SUPER_ADMIN_ID = 1
"""Its id in the default tenant."""


@dataclass(frozen=True, slots=True)
class SeedMenu:
    """An entry of the tree; `name` is the code as well."""

    id: int
    code: str
    parent: int | None = None

    @property
    def type(self) -> str:
        """What is a `Function` is a FUNCTION, the pages are MENUs."""
        return "FUNCTION" if self.code in _FUNCTIONS else "MENU"


_FUNCTIONS = frozenset(Function)

MENUS = (
    SeedMenu(1000, "dashboard"),
    SeedMenu(1001, "dashboard.view", 1000),
    SeedMenu(1002, "dashboard.add", 1000),
    SeedMenu(1003, "dashboard.edit", 1000),
    SeedMenu(2000, "device"),
    SeedMenu(2001, "device.view", 2000),
    SeedMenu(2002, "device.add", 2000),
    SeedMenu(2003, "device.edit", 2000),
    SeedMenu(2004, "device.delete", 2000),
    SeedMenu(7000, "entity"),
    SeedMenu(3000, "entity_custom", 7000),
    SeedMenu(3001, "entity_custom.view", 3000),
    SeedMenu(3002, "entity_custom.add", 3000),
    SeedMenu(3003, "entity_custom.edit", 3000),
    SeedMenu(3004, "entity_custom.delete", 3000),
    SeedMenu(4000, "entity_data", 7000),
    SeedMenu(4001, "entity_data.view", 4000),
    SeedMenu(4002, "entity_data.edit", 4000),
    SeedMenu(4003, "entity_data.export", 4000),
    SeedMenu(5000, "workflow"),
    SeedMenu(5001, "workflow.view", 5000),
    SeedMenu(5002, "workflow.add", 5000),
    SeedMenu(5004, "workflow.edit", 5000),
    SeedMenu(5006, "workflow.delete", 5000),
    SeedMenu(6000, "integration"),
    SeedMenu(6001, "integration.view", 6000),
)
"""Parents stand before their children."""
