"""What flows: rows, messages, actions, trajectories, records. Nothing here imports another room."""
