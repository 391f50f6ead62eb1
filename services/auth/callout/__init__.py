"""The NATS auth callout: authorizes external connections to NATS.

nats-server sends a request to `$SYS.REQ.USER.AUTH` for every connection that is not one of the
services' users
(https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_callout).
"""
