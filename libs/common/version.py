"""The version of the platform, defined only here."""

VERSION = "0.2.0"
"""Semantic version; CHANGELOG.md describes each version."""
