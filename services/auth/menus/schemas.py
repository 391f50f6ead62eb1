"""Menu entries, on the wire and inside (specification, "Menu"; notes, section 3.4)."""

from enum import StrEnum

import msgspec

from libs.common.http.console import Id, Shown
from services.auth.audit.schemas import Subject


class MenuType(StrEnum):
    """A page, or what may be done on one."""

    MENU = "MENU"
    FUNCTION = "FUNCTION"


class Menu(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it is stored."""

    id: int
    code: str
    name: str
    type: MenuType
    parent_id: int | None = None

    @property
    def subject(self) -> Subject:
        """The entry in the audit log."""
        return Subject("menu", str(self.id), self.name)


class NewMenu(msgspec.Struct, kw_only=True):
    """Body of `POST /user/menus`."""

    code: str
    name: str
    type: MenuType
    parent_id: Id | None = None


class MenuUpdate(msgspec.Struct, kw_only=True):
    """Body of `PUT /user/menus/{menu_id}`; code and parent stay."""

    name: str
    type: MenuType


class MenuMade(msgspec.Struct):
    """Answer of `POST /user/menus`."""

    menu_id: str


class ShownMenu(Shown):
    """An entry of a flat list; a root has no `parent_id`."""

    menu_id: str
    code: str
    name: str
    type: MenuType
    parent_id: str | None = None


class MenuNode(ShownMenu, kw_only=True):
    """An entry of the tree; consoles need `children` on leaves as well."""

    children: list["MenuNode"]
