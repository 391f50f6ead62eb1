"""Telemetry: ingest, history, latest values, presence, retention and HTTP ingest."""
