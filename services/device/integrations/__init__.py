"""Integrations: what is known of them, their own things, what they tell."""
