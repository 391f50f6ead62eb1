"""The `thingway` command, which runs the platform on one machine."""
