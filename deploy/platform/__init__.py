"""Code shared by launcher, compose and Kubernetes: services, servers, first data."""
