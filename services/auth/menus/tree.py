"""Menus as flat lists and as trees."""

from collections.abc import Iterable, Sequence

from libs.common.identity import Principal
from services.auth.accounts.menus import Menu
from services.auth.menus.schemas import MenuNode, ShownMenu

OWN_PAGES = frozenset({"product"})
"""Codes of pages that the own console has and others do not: those show a raw key for them."""


def flat(menus: Iterable[Menu]) -> list[ShownMenu]:
    """Entries one by one."""
    return [
        ShownMenu(
            menu_id=str(menu.id),
            code=menu.code,
            name=menu.name,
            type=menu.type,
            parent_id=None if menu.parent_id is None else str(menu.parent_id),
        )
        for menu in menus
    ]


def tree(menus: Sequence[Menu]) -> list[MenuNode]:
    """The roots with their children; an entry whose parent is not among `menus` is a root."""
    nodes = {
        menu.id: MenuNode(
            menu_id=shown.menu_id,
            code=shown.code,
            name=shown.name,
            type=shown.type,
            parent_id=shown.parent_id,
            children=[],
        )
        for menu, shown in zip(menus, flat(menus), strict=True)
    }
    roots: list[MenuNode] = []
    for menu in menus:
        parent = None if menu.parent_id is None else nodes.get(menu.parent_id)
        siblings = roots if parent is None else parent.children
        siblings.append(nodes[menu.id])
    return roots


def visible_to(user: Principal, menus: Sequence[Menu]) -> list[Menu]:
    """Return the menus that the user's console knows.

    `menus` are all menus of the tenant. For a console other than our own, `OWN_PAGES` and the
    entries below them are left out.
    """
    if user.uses_own_console:
        return list(menus)
    known = {menu.id: menu for menu in menus}

    def is_own(menu: Menu | None) -> bool:
        while menu is not None and menu.code not in OWN_PAGES:
            menu = None if menu.parent_id is None else known.get(menu.parent_id)
        return menu is not None

    return [menu for menu in menus if not is_own(menu)]


def with_ancestors(menus: Sequence[Menu], ids: Iterable[int]) -> list[Menu]:
    """Those of `menus` that have one of `ids`, and the pages that lead to them.

    Consoles show a function only below its pages.
    """
    known = {menu.id: menu for menu in menus}
    wanted: set[int] = set()
    for menu_id in ids:
        at: int | None = menu_id
        while at is not None and at in known and at not in wanted:
            wanted.add(at)
            at = known[at].parent_id
    return [menu for menu in menus if menu.id in wanted]
