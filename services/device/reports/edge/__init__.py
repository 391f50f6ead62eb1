"""The device edge over HTTP: `/ingest/v1/{sn}/…`."""
