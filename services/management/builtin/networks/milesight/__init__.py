"""`milesight`: devices of the network server in Milesight gateways, over MQTT."""
