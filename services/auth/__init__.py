"""Who you are and what you may do: applications, device credentials, tokens."""
