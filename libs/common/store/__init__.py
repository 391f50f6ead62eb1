"""Clients of the databases, with ids, migrations and leases."""
