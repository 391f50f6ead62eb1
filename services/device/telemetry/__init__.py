"""Telemetry: ingest, history, latest values, presence, retention and the HTTP edge."""
