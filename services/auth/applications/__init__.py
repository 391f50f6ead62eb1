"""Applications: third-party clients of the device open API."""
