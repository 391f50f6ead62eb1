"""What flows send outside, to public addresses or to those that the operator allows."""
