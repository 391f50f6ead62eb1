"""Fixtures of the fault tests: the platform of the end-to-end tests."""

from tests.e2e.conftest import application, console, events, platform

__all__ = ["application", "console", "events", "platform"]
