"""From a row to a scored rollout: agent loop, workers, router, rewards."""
