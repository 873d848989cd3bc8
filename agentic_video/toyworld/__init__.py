"""Synthetic videos, questions about them and a tiny model: the data and models of the laptop profile."""
