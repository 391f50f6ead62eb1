"""References, conditions and CEL in the parameters of nodes."""
