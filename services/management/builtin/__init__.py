"""The integrations that come with the platform."""
