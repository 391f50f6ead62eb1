"""Commands: property updates, service calls and tasks, up to the device's answer."""
