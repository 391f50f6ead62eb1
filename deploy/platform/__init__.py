"""What the launcher, the containers and the cluster share: services, their logins, first data."""
