"""Video tools: what an agent may call, one file each."""
