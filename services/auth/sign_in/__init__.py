"""Token endpoints: `POST /oauth/token` and, for users, `POST /oauth2/token`.

`open_api.py` and `console.py` contain the operations, `tokens.py` the grant types.
`services/auth/login_records.py` records rejected logins, and `services/auth/tokens` writes tokens
to Redis.
"""
