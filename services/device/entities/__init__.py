"""Entities: a view on things and their TSLs. There is no row for an entity anywhere."""
