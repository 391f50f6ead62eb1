"""What devices, applications and integrations say on plain NATS, and who passes it on."""
