"""How much a step moves and waits, beside stock verl; how long a tool takes, beside opening a decoder at each call."""
