"""Alarm notifications by e-mail and webhook, with digests and quiet hours."""
