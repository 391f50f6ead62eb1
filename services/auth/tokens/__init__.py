"""`POST /oauth/token`: both grants."""
