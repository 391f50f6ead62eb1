"""What the containers need: the image's entrypoint and health check, and compose's one-shot jobs."""
