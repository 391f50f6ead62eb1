"""People's code, run in processes that can do nothing but compute."""
