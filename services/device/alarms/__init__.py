"""Alarms: rules, their evaluation, and alarms that they raise (docs/how-to/alarms.md)."""
