"""Published ways of watching a video, one file each."""
