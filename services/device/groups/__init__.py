"""Groups of devices: a device is in one at most, and its document says in which."""
