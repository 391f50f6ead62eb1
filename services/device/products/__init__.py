"""Products: models of devices, with their TSL documents by version."""
