"""What plays a model's part in the episodes of an evaluation."""
