"""Libraries of device templates: kept for a tenant, and made products of."""
