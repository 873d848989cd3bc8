"""What the laptop profile trains on and with: synthetic videos, questions about them, and a tiny model that can learn
to look closer."""
