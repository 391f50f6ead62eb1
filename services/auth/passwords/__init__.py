"""Passwords of people: the rule they obey, how they are kept, how guessing is slowed down."""
