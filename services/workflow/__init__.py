"""`workflow`: flows, their triggers, the engine that runs them, and their logs."""
