"""LoRaWAN network servers: what they hear of devices, and what they carry to them."""
