"""Values of entities: what they were, what they are to be, and what services answer."""
