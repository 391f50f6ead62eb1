"""Revocations that are made true in Redis even when this process dies halfway."""
