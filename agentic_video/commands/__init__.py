"""The subcommands of ``agentic-video``, one file each: they parse, and call a library."""
