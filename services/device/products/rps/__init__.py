"""RPS: profile URLs for devices that are yet to be added."""
