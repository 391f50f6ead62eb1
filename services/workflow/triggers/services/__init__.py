"""Flows that are services: what people and other flows call."""
