"""Who may come in: addresses, credentials, principals and their limits."""
