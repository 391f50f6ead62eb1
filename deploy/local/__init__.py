"""The one-machine launcher: the `thingway` command."""
