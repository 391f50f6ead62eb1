"""Code that every service shares."""
