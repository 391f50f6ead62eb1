"""Alarm notifications by email and webhook, with digests and quiet hours."""
