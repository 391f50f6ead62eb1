"""The relay of NATS messages of devices, applications and integrations."""
