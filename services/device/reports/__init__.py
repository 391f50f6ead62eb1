"""Reports: from what devices say on `UPLINK` to history, latest values and events."""
