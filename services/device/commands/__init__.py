"""Commands to devices, from the request until the device answers or the command expires."""
