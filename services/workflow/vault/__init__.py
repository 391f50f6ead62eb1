"""Secrets in designs: kept encrypted, with marks in their place."""
