"""The built-in integrations."""
