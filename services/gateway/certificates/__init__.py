"""The door of devices that log in to MQTT with a certificate; everybody else is let pass as is.

nats-server either asks every client of its MQTT listener for a certificate or none. So this
listener of the gateway ends TLS, and says to nats-server in the CONNECT whose certificate came.
"""
