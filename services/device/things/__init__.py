"""Records of devices, products, specifications and groups, for all other packages."""
