"""verl's PPO trainers, extended."""
