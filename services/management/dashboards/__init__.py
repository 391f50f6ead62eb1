"""Dashboards of widgets, whose content the platform does not interpret."""
