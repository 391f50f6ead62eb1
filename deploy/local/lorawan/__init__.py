"""Simulated LoRaWAN networks: a network server's messages for simulated sensors."""
