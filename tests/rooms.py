"""The package's rooms, who imports whom, and how that is drawn in docs/architecture.md.

``python -m tests.rooms`` writes the drawing and the lines of code anew.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "agentic_video"
PAGE = REPOSITORY / "docs" / "architecture.md"

FLOORS: tuple[tuple[str, ...], ...] = (
    ("types", "utils"),
    ("video", "grounding"),
    ("graders", "families"),
    ("tools",),
    ("systems",),
    ("rollout",),
    ("config",),
    ("datasets", "converters", "planning"),
    ("report",),
    ("evaluation",),
    ("synthesis", "toyworld", "training"),
    ("launch",),
    ("commands",),
    ("cli",),
)
"""From the ground up: a room imports from lower floors only, and from itself."""
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


@cache
def python_files() -> list[Path]:
    """All modules of the package."""
    return sorted(PACKAGE.rglob("*.py"))


@cache
def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The room of a module of ours; empty for the package's own ``__init__``."""
    return [*module.split("."), ""][1]


@cache
def tree_of(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of everything that a file imports, wherever in the file; a package's names as its modules."""
    modules = {module_of(one) for one in python_files()}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in modules else node.module), node.lineno


@cache
def file_graph() -> dict[str, set[str]]:
    """For each module of ours, those of ours that it imports."""
    modules = {module_of(path) for path in python_files()}
    return {
        module_of(path): {name for name, _ in imports_of(path) if name in modules and name != module_of(path)}
        for path in python_files()
    }


@cache
def room_graph() -> dict[str, set[str]]:
    """For each room, the others that it imports."""
    graph: dict[str, set[str]] = {room: set() for room in FLOOR_OF}
    for module, others in file_graph().items():
        if room := room_of(module):
            graph.setdefault(room, set()).update(room_of(other) for other in others)
    return {room: others - {room, ""} for room, others in graph.items()}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of nodes that reach each other."""
    reach = {node: reachable(graph, node) for node in graph}
    found: list[set[str]] = []
    for node in graph:
        group = {other for other in reach[node] if node in reach.get(other, ())}
        if group and group not in found:
            found.append(group)
    return found


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """What a node reaches by one step or more."""
    seen: set[str] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += graph.get(node, ())
    return seen


def drawn_arrows() -> set[tuple[str, str]]:
    """The room graph without the arrows that a longer way implies."""
    graph = room_graph()
    return {
        (room, other)
        for room, others in graph.items()
        for other in others
        if not any(other in reachable(graph, between) for between in others - {other})
    }


def lines_of(room: str) -> int:
    """Lines of a room's Python."""
    files = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").is_file() else sorted((PACKAGE / room).rglob("*.py"))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def drawing() -> str:
    """The rooms as a Mermaid flowchart, the ground at the bottom."""
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {room}["{room}<br/>{lines_of(room):,} lines"]' for rooms in reversed(FLOORS) for room in rooms]
    lines += [f"    {room} --> {other}" for room, other in sorted(drawn_arrows(), key=lambda a: (-FLOOR_OF[a[0]], a))]
    return "\n".join([*lines, "```"])


def drawn_on_the_page() -> tuple[dict[str, int], set[tuple[str, str]]]:
    """The rooms with their lines, and the arrows, as the page draws them."""
    text = PAGE.read_text(encoding="utf-8").partition("flowchart TD")[2].partition("```")[0]
    rooms = {name: int(count.replace(",", "")) for name, count in re.findall(r'(\w+)\["\1<br/>([\d,]+) lines"\]', text)}
    return rooms, set(re.findall(r"^    (\w+) --> (\w+)$", text, re.MULTILINE))


def main() -> int:
    """Put the drawing into the page, in place of the one that is there."""
    text = PAGE.read_text(encoding="utf-8")
    new, count = re.subn(r"```mermaid\nflowchart TD\n.*?```", lambda _: drawing(), text, count=1, flags=re.DOTALL)
    PAGE.write_text(new, encoding="utf-8")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
