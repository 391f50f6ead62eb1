"""`chirpstack`: devices of a ChirpStack 4 server, over its MQTT integration."""
