"""Alarms are told to users: by mail and webhook, at once or together, not in quiet hours."""
