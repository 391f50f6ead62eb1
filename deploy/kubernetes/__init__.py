"""Jobs and tests of the Helm chart (deploy/helm/thingway)."""
