"""Data sets and losses of SFT and KTO."""
