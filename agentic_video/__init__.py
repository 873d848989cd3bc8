"""Train vision-language models to watch long videos on their own."""
