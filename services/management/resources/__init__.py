"""Resources: pictures that people upload, for covers and widgets."""
