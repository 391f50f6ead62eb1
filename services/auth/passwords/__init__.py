"""Passwords of people: the rule they obey, and how they are kept."""
