"""How fast things go, and what they move, beside other ways of doing the same."""
