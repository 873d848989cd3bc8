r"""Normalization of answers as people and models write them.

``plain`` handles the signs of full-width and CJK writing, ``without_latex`` LaTeX, ``undress`` both and Markdown and
HTML; ``peeled`` removes one wrapper after the other. All take time in proportion to the text's length.
"""

import re
import unicodedata
from collections.abc import Iterator

_DEPTH = 8
"""Most nested wrappers."""

# 10\u00b2 isn't 102, and 1\u00bd isn't 11/2
_RAISED = {
    ord(raised): f"^{digit}"
    for digit, raised in enumerate("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
}
_MIXED = re.compile("(?<=[0-9])(?=[\u00bc-\u00be\u2150-\u215e])")
_THIN = re.compile("(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u3002\u30fb\u2024", "."),
        "\u3001": ",",
        **dict.fromkeys("\u2018\u2019\u201a\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033\u300a\u300b\u3008\u3009\u300c\u300d\u300e\u300f\u00ab\u00bb", '"'),
        **dict.fromkeys("\u3010\u3014\u3016", "["),
        **dict.fromkeys("\u3011\u3015\u3017", "]"),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u301c\u223c", "~"),
        **dict.fromkeys("\u2192\u27f6\u21d2\u2794\u279c", "->"),
        **dict.fromkeys("\u2044\u2215", "/"),
        **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff"),
    }
)

_LOOKS = (
    "boxed fbox framebox text textbf textit textrm textsf texttt textsc textsl textup textmd textnormal "
    "math mathrm mathbf mathit mathsf mathtt mathcal mathbb mathfrak mathnormal operatorname "
    "operatorname* mbox hbox emph underline boldsymbol bm ensuremath rm bf it sf tt bfseries itshape "
    "rmfamily displaystyle textstyle large Large left right big Big"
)
"""LaTeX commands of style."""
_COMMANDS = frozenset(_LOOKS.split())
_WRAPPING = re.compile(r"\\([A-Za-z]+\*?)[ ]?\{")
_FRACTIONS = frozenset(("\\frac", "\\dfrac", "\\tfrac", "\\cfrac"))
_WORDS = {
    **{f"\\{name}": "" for name in _COMMANDS},
    **dict.fromkeys(("\\times", "\\ast"), "\u00d7"),
    "\\cdot": "\u00b7",
    "\\div": "\u00f7",
    "\\pm": "\u00b1",
    **dict.fromkeys(("\\degree", "\\circ"), "\u00b0"),
    "\\pi": "\u03c0",
    **dict.fromkeys(("\\le", "\\leq"), "\u2264"),
    **dict.fromkeys(("\\ge", "\\geq"), "\u2265"),
    **dict.fromkeys(("\\ne", "\\neq"), "\u2260"),
    "\\approx": "\u2248",
    **dict.fromkeys(("\\to", "\\rightarrow"), "->"),
    "\\sim": "~",
    "\\infty": "\u221e",
    **dict.fromkeys(("\\dots", "\\ldots", "\\cdots"), "..."),
    **dict.fromkeys(("\\quad", "\\qquad", "\\newline", "\\,", "\\;", "\\:", "\\!", "\\ ", "\\\\"), " "),
    **dict.fromkeys(("\\(", "\\)", "\\[", "\\]"), " "),
    **{f"\\{sign}": sign for sign in "%$#&_{}"},
}
_LATEX = re.compile(r"\\[A-Za-z]+\*?|\\.|[{}]|[^\\{}]+|\\")
_THOUSANDS = re.compile(r"(?<=[0-9])(?:\\,|\{,\})(?=[0-9]{3}(?![0-9]))")
# As pandoc tells maths from prices: no space within the dollars, no digit after them
_MATHS = re.compile(r"(?<!\\)\$\$?(?: ([A-Za-z]) |([^$\s]|[^$\s][^$]*[^$\s]))\$\$?(?![0-9$])")
_TIMES = re.compile(r"(?<=\w)( ?)(?<!\*)\*(?!\*)\1(?=\w)")
_TAG = re.compile(r"</?(?:b|i|u|em|p|br|li|ins|strong|mark|span|code|tt|big|small|font|center|answer|ans)\s?/?>", re.I)
_RAISED_TAG = re.compile(r"<sup>([^<>]{1,8})</sup>", re.I)
_LINE_MARK = re.compile(r"(?:[#>]{1,6}|[-+*\u2022\u00b7\u25cf\u25aa])[ ]+")

_WRAPPERS = (
    ("**", "**"), ("__", "__"), ("```", "```"), ("*", "*"), ("_", "_"), ("~", "~"), ("`", "`"),
    ("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ('"', '"'), ("'", "'"), ("|", "|"),
    ("(", ")"), ("[", "]"), ("{", "}"), ("<b>", "</b>"), ("<i>", "</i>"), ("<strong>", "</strong>"), ("<em>", "</em>"),
    ("\uff08", "\uff09"), ("\uff3b", "\uff3d"), ("\u3010", "\u3011"), ("\u3014", "\u3015"), ("\u201c", "\u201d"),
    ("\u2018", "\u2019"), ("\u300a", "\u300b"), ("\u3008", "\u3009"), ("\u300c", "\u300d"), ("\u300e", "\u300f"),
)  # fmt: skip
_LAST_STOPS = " \t\n.\u3002\uff0e,;!"


def plain(text: str) -> str:
    """Replace the signs of full-width and CJK writing, quotes, dashes and arrows with ASCII's."""
    text = _THIN.sub("", _MIXED.sub(" ", text.translate(_RAISED)))
    return unicodedata.normalize("NFKC", text).translate(_SIGNS)


def undress(text: str) -> str:
    """Put a text on one line, in plain signs, without the marks of Markdown, HTML and balanced LaTeX."""
    text = plain(text).lstrip()
    text = text[mark.end() :] if (mark := _LINE_MARK.match(text)) else text
    text = _TAG.sub(" ", _RAISED_TAG.sub(r"^\1", text))
    text = _MATHS.sub(lambda maths: maths[1] or maths[2], text)
    if "\\" in text or "{" in text or "}" in text:
        text = without_latex(text)
        text = _MATHS.sub(lambda maths: maths[1] or maths[2], text)  # $\boxed{$A$}$
    text = _TIMES.sub("\\1\u00d7\\1", text)
    return " ".join(text.translate(_MARKS).split())


_MARKS = {ord(mark): None for mark in '*`_"'}


def without_latex(text: str) -> str:
    """Remove LaTeX's commands and braces, fractions become quotients; unbalanced text stays as it is."""
    groups = [_Group()]
    for token in _LATEX.findall(_THOUSANDS.sub(lambda mark: "," if "{" in mark[0] else "", text)):
        if token == "{":
            groups.append(_Group())
        elif token == "}":
            if len(groups) == 1:
                return text
            inner = groups.pop().text
            groups[-1].add(inner)
        elif token in _FRACTIONS:
            groups[-1].begin_fraction()
        elif token[0] == "\\":
            groups[-1].add(_WORDS.get(token, token))
        else:
            rest = groups[-1].add_digits(token)
            groups[-1].add(rest)
    if len(groups) > 1:
        return text
    return groups[0].text.replace("^\u00b0", "\u00b0")


class _Group:
    """Text within one pair of braces."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._of_fraction: list[str] | None = None

    @property
    def text(self) -> str:
        return "".join((*self._parts, *(self._of_fraction or ())))

    def begin_fraction(self) -> None:
        self._parts += self._of_fraction or ()
        if self._parts and self._parts[-1][-1:].isdigit():
            self._parts.append(" ")  # 2\frac{1}{2} isn't 21/2
        self._of_fraction = []

    def add(self, text: str) -> None:
        if self._of_fraction is None:
            self._parts.append(text)
        elif text.strip():
            self._of_fraction.append(text.strip())
            if len(self._of_fraction) == 2:
                self._parts.append("/".join(part if part.isalnum() else f"({part})" for part in self._of_fraction))
                self._of_fraction = None

    def add_digits(self, text: str) -> str:
        """Take a fraction's parts that stand without braces, ``\\frac12``, and return what follows them."""
        if self._of_fraction is None:
            return text
        text = text.lstrip()
        while self._of_fraction is not None and text:
            self.add(text[0])
            text = text[1:].lstrip() if self._of_fraction is not None else text[1:]
        return text


def _balanced(text: str) -> bool:
    depth = 0
    for token in _LATEX.findall(text):
        depth += {"{": 1, "}": -1}.get(token, 0)
        if depth < 0:
            return False
    return depth == 0


def peeled(text: str) -> Iterator[str]:
    r"""Yield a text, then without one wrapper after the other: ``**$x$**``, ``$x$``, ``x``."""
    text = " ".join(text.split())
    yield text
    for _ in range(_DEPTH):
        inner = _inside(text)
        if inner is None:
            bare = text.strip(_LAST_STOPS)
            inner = _inside(bare) if bare != text else None
        if not inner:
            return
        text = inner
        yield text


def _inside(text: str) -> str | None:
    """Remove a text's outermost wrapper; None where it has none."""
    if (mark := _LINE_MARK.match(text)) is not None:
        return text[mark.end() :].strip()
    if (command := _WRAPPING.match(text)) is not None and command[1] in _COMMANDS and text.endswith("}"):
        inner = text[command.end() : -1]
        return inner.strip() if _balanced(inner) else None
    if text.startswith("$\\boxed{") and text.endswith("}$") and _balanced(inner := text[len("$\\boxed{") : -2]):
        return inner.strip()
    for opening, closing in _WRAPPERS:
        if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            inner = text[len(opening) : -len(closing)]
            if opening not in inner and closing not in inner:
                return inner.strip()
    return None
