"""What devices said and the platform refused, for people."""
