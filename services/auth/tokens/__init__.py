"""What `auth` writes into Redis for the gateway: tokens, and copies of device keys.

`writer.py` issues, rotates and revokes tokens; `device_keys.py` restores and drops the copies. How
both are looked up, and under which keys they stand, is in `libs.common.identity.tokens` and
`libs.common.identity.device_keys`. The endpoints that give tokens are in `sign_in`.
"""
