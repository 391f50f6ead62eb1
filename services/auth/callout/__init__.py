"""The answer to NATS's auth callout: who may connect to the bus from outside, and to say what.

nats-server asks on `$SYS.REQ.USER.AUTH` about every connection that is not one of the services'
own users (https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_callout).
"""
