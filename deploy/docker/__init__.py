"""What the containers need: entrypoint and health check, and the jobs of docker-compose.yml."""
