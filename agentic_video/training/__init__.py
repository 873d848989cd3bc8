"""Training with verl, which is imported in this room only.

verl loads the plugin (``plugin.py``), which registers the agent loop, the reward manager, the trainer and the patches.
SFT and KTO have data sets and trainers of their own.
"""
