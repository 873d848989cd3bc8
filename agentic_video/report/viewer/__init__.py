"""The episode viewer: a self-contained HTML report of recorded episodes, or a local server for large runs."""
