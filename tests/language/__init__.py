"""The language check of `make lint`: plain English in documents, the console and docstrings.

`rules.toml` holds the rules and the checked areas, `texts.py` reads texts out of files, `checks.py`
applies the rules, and `grammar.mjs` runs Harper, a grammar checker.
"""
