"""The version of the platform: its one home."""

VERSION = "0.2.0"
"""Semantic versioning; what each has is in CHANGELOG.md."""
