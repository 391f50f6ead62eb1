"""`POST /oauth2/token`: people sign in at the console and stay signed in."""
