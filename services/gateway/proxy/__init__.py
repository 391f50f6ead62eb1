"""The proxy: it streams requests to the services, and answers to the clients."""
