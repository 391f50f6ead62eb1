"""Device credentials: the key with which an SN logs in, over MQTT, NATS and HTTP."""
