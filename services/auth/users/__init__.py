"""Users of a tenant, and operations on one's own account."""
