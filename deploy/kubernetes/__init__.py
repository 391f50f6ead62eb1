"""What the chart's jobs run (deploy/helm/thingway); the rest is `deploy.docker` and `deploy.platform`."""
