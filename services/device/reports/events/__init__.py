"""Events that devices reported: their history for people, and the last of each kind."""
