"""Menu entries on the wire."""

import msgspec

from libs.common.http.console import Shown
from libs.common.http.ids import Id
from services.auth.accounts.menus import MenuType


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
