"""Dashboards: widgets that people arrange; their content is opaque to us."""
