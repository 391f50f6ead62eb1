"""Canvases: what lies on a dashboard or on the page of a device."""
