"""Text of models and users."""


def is_unicode(text: str) -> bool:
    """Return False for text with half a surrogate pair, which JSON can write, but no tokenizer or UTF-8 file takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_unicode(text: str) -> str:
    """Join the halves of surrogate pairs, and replace each lone half with the replacement character."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def short(value: object) -> str:
    """First 60 characters of a value's repr, for messages."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def printable(text: str) -> str:
    """Escape the control characters of a text, which a terminal or a log would obey."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)
