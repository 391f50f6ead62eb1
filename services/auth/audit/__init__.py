"""The audit log: who changed what, on what, from where; append-only."""
