"""Fairness among tenants: shares of what is limited, and turns at what is scarce. No I/O."""
