"""Reading kept frames again with the codec that a product has now."""
