"""The logs of flows, as people read them."""
