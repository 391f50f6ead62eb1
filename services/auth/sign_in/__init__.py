"""How tokens are got: `POST /oauth/token` (applications) and `POST /oauth2/token` (people).

`open_api.py` and `console.py` have the operations, `application_tokens.py` and `user_tokens.py` the
grants behind them; `services/auth/refused_logins.py` records failed log-ins. What is written into
Redis for a token is in `services/auth/tokens`.
"""
