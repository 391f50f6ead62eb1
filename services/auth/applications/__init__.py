"""Applications: who may call the device open API, and with which secret."""
