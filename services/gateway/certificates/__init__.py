"""The doors of devices that log in to MQTT and NATS with a certificate; others pass as they are.

nats-server either asks every client of a listener for a certificate or none. So these listeners of
the gateway end TLS, and say to nats-server in the CONNECT whose certificate came.
"""
