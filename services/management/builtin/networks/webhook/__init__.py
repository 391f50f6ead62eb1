"""`webhook`: devices of any network server that posts JSON, told by pointers into it."""
