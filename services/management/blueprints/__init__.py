"""Where blueprints of devices come from: none but the built-in source, which is empty."""
