"""`auth`: who may do what: log-ins, the accounts of tenants, credentials, the audit log."""
