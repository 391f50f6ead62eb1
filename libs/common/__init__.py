"""Code that the services share. It imports no service."""
