"""The gateway, the only public service: logins, limits, routing, documentation."""
