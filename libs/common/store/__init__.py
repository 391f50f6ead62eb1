"""Clients of the stores, and what is built on them: ids, migrations, leases."""
