"""LoRaWAN network servers: uplinks from their devices, and downlinks to the devices."""
