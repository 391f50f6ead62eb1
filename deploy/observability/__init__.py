"""What watches the platform: alert rules for Prometheus, dashboards for Grafana."""
