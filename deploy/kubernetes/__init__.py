"""What the jobs of the chart run (deploy/helm/thingway)."""
