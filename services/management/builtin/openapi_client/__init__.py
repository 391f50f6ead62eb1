"""`openapi-client`: devices of another platform that speaks our own device open API."""
