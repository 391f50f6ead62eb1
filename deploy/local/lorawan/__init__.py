"""Simulated LoRaWAN networks: a network server's own messages for sensors that are not there."""
