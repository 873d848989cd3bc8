"""The embedded default: synthetic videos, questions about them, an oracle, and a tiny model that can learn to zoom."""
