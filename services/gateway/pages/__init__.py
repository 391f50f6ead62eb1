"""The gateway's own pages: probes, metrics, documentation."""
