"""Notation of times and sizes."""

GIB = 2**30


def clock(seconds: float) -> str:
    """Format a time as ``MM:SS``, cut to whole seconds; an hour is 60 minutes."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def duration(seconds: float) -> str:
    """Format a duration: ``45 s``, ``12 min``, ``3 h 20 min``."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
