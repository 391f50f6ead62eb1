"""Data that `auth` writes to Redis for the gateway: tokens and device key copies.

`writer.py` issues, rotates and revokes tokens. `device_keys.py` restores and drops the copies.
`libs.common.identity.tokens` and `libs.common.identity.device_keys` contain the lookups and keys.
`sign_in` contains the endpoints that issue tokens.
"""
