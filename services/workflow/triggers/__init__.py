"""Triggers of flows: timers, events, MQTT messages, HTTP requests, service calls."""
