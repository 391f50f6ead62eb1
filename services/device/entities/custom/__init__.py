"""Custom entities: what people make on the hidden integration `system`, and what flows do."""
