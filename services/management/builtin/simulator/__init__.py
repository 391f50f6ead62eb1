"""`simulator`: virtual devices of any product, which report plausible values and obey commands."""
