"""Alarms: rules, their evaluation, and alarms that they raise (docs/alarms.md)."""
