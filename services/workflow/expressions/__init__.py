"""References, conditions and CEL: what parameters of nodes may say."""
