"""Device credentials: key and certificates with which an SN logs in, over MQTT, NATS and HTTP."""
