"""Members and entities of things.

Members come from a TSL or from reports of a device of the product `generic`. This package numbers
the members of products, records shapes during ingest, and finds entities by id and key. Entities
are not stored.
"""
