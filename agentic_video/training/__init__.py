"""What verl needs from us: a CPU platform, a vLLM worker extension, a trainer that logs what episodes did."""
