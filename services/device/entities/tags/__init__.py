"""Tags of entities: a tenant has some, and each entity may carry a few of them."""
