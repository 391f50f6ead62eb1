"""Users: the people of a tenant, and what each may do with their own account."""
