"""How tokens are got: `POST /oauth/token` (applications) and `POST /oauth2/token` (people).

`open_api.py` and `console.py` are the two doors, `applications.py` and `people.py` the grants
behind them, `refused.py` records who was refused. What is written into Redis for a token is in
`services/auth/tokens`.
"""
