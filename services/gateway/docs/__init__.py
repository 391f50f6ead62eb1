"""The API documentation: one OpenAPI document of all services, and a page that shows it."""
