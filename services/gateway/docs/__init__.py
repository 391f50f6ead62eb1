"""The API documentation: an OpenAPI document of all services, and its page."""
