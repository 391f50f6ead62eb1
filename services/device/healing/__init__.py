"""History that heals itself: devices are asked for what they remember of gaps."""
