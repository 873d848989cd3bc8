"""Hydra config groups that the recipes put on top of verl's ``ppo_trainer``."""
