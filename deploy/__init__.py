"""Deployment of Thingway: the command, backup, containers, chart, monitoring."""
