"""Episodes: the turn machine, the policies that drive it, and the token ids that are trained on."""
