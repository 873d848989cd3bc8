"""Texts that others wrote."""


def is_unicode(text: str) -> bool:
    """Whether a text is one: JSON can write half of a surrogate pair, which no tokenizer and no UTF-8 file takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_unicode(text: str) -> str:
    """A text with a replacement character for each half of a surrogate pair, such as what a model wrote has when it is
    shown to it again; two halves that belong together become their character."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def short(value: object) -> str:
    """A value for a message, as Python writes it: its first 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def printable(text: str) -> str:
    """A text for a terminal or a log: what isn't shown there, but obeyed, is written as an escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)
