"""Devices: records, telemetry, entities, commands, alarms, LoRaWAN and products."""
