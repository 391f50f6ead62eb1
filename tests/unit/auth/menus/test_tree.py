"""Menus as flat lists and trees."""

from libs.common.identity.functions import Function
from services.auth.accounts.roles import INITIAL_MENUS, Menu, MenuType
from services.auth.menus import build_menu_tree, flatten_menus, select_with_ancestors


def menu(menu_id: int, parent: int | None = None) -> Menu:
    return Menu(
        id=menu_id, code=f"c{menu_id}", name=f"n{menu_id}", type=MenuType.MENU, parent_id=parent
    )


MENU_LIST = [menu(1), menu(2, 1), menu(3, 2), menu(4, 1), menu(5)]


def test_a_flat_list_shows_ids_as_strings() -> None:
    """A root has no parent."""
    shown = flatten_menus(MENU_LIST)

    assert [(each.menu_id, each.parent_id) for each in shown] == [
        ("1", None),
        ("2", "1"),
        ("3", "2"),
        ("4", "1"),
        ("5", None),
    ]


def test_a_tree_has_children_below_their_parents() -> None:
    """At any depth, in the order of the list, whether parents come first or last."""
    for menus in (MENU_LIST, MENU_LIST[::-1]):
        roots = build_menu_tree(menus)
        first = next(node for node in roots if node.menu_id == "1")
        nested = next(node for node in first.children if node.menu_id == "2")

        assert {node.menu_id for node in roots} == {"1", "5"}
        assert {node.menu_id for node in first.children} == {"2", "4"}
        assert [node.menu_id for node in nested.children] == ["3"]
        assert nested.children[0].children == []


def test_an_entry_without_its_parent_is_a_root() -> None:
    """A part of the tree is a tree."""
    assert [node.menu_id for node in build_menu_tree([menu(3, 2), menu(4, 3)])] == ["3"]


def test_parent_pages_of_granted_entries_are_included() -> None:
    """Other entries of the parents are not."""
    assert [each.id for each in select_with_ancestors(MENU_LIST, [3])] == [1, 2, 3]
    assert [each.id for each in select_with_ancestors(MENU_LIST, [3, 5, 3, 99])] == [1, 2, 3, 5]
    assert select_with_ancestors(MENU_LIST, []) == []


def test_every_function_is_seeded_once() -> None:
    """A function that no menu has could not be granted; parents stand before children."""
    seen: set[int] = set()
    for seed in INITIAL_MENUS:
        assert seed.parent_id is None or seed.parent_id in seen
        seen.add(seed.id)

    assert len(seen) == len({seed.code for seed in INITIAL_MENUS}) == len(INITIAL_MENUS)
    assert {seed.code for seed in INITIAL_MENUS if seed.type == "FUNCTION"} == set(Function)
