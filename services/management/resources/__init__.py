"""Uploaded files: pictures for covers and widgets, ZIPs of device templates."""
