"""`auth`: accounts, permissions, credentials, tokens and the audit log."""
