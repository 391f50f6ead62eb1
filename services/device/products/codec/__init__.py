"""Codecs of products: kept beside the TSL, checked as they are imported, tried by request."""
