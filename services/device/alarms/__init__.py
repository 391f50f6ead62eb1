"""Alarms: rules, what devices do against them, and who looks at it (docs/how-to/alarms.md)."""
