"""Commands: property updates, service calls and tasks, from the application to the device's answer."""
