"""Menus: the tree of pages and functions that roles are given."""
