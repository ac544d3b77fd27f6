r"""Match file names against the search patterns of the protocol.

Pure, and without `re` or `fnmatch`. The set of positions that a pattern's prefix can reach in
a name is one integer, a bit per position, so every element of the pattern is a few operations
on the whole set and nothing is ever tried twice: the time is linear in the length of the pattern
and in the length of the name. Only `!(...)` costs one such pass per position.

    *  ?  [a-z]  [!a] [^a]  {a,b}  !(a|b)  \x      and  **  between slashes

A pattern without a slash is matched against the base name, one with a slash against the path
relative to the search root. `*` and `?` also match a leading dot.

Source: protocol, execd §7.4.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Node = tuple[str, "object"]

_LONGEST = 4096
_DEEPEST = 16


class BadPattern(ValueError):
    """The pattern cannot be understood; the message says where."""


class Glob:
    """A compiled pattern.

    Attributes:
        whole_path: the pattern holds a slash, so it judges the relative path, not the base name.
    """

    __slots__ = ("_all", "_nodes", "_prefix", "_suffix", "whole_path")

    def __init__(self, pattern: str) -> None:
        """Compile a pattern.

        Raises:
            BadPattern: a bracket is not closed, a range runs backwards, nothing follows a
                backslash, or the pattern is too long or nested too deeply.
        """
        if len(pattern) > _LONGEST:
            raise BadPattern(f"pattern has {len(pattern)} characters, at most {_LONGEST} are allowed")
        while pattern.startswith("./"):
            pattern = pattern[2:]
        self.whole_path = "/" in pattern
        self._nodes = _Parser(pattern).parse()
        kinds = [kind for kind, _ in self._nodes]
        self._all = kinds == ["deep"] or (kinds == ["star"] and not self.whole_path)
        self._prefix = self._suffix = ""
        if not self.whole_path:  # the two commonest shapes need no sets
            if kinds == ["star", "text"]:
                self._suffix = str(self._nodes[1][1])
            elif kinds == ["text", "star"]:
                self._prefix = str(self._nodes[0][1])

    def matches(self, name: str) -> bool:
        """Say whether a whole name (or relative path) matches."""
        if self._all:
            return True
        if self._suffix:
            return name.endswith(self._suffix)
        if self._prefix:
            return name.startswith(self._prefix)
        subject = _Subject(name)
        return bool(subject.run(self._nodes, 1) >> len(name) & 1)


class _Subject:
    """A name, and for each kind of character the set of positions where one stands."""

    __slots__ = ("_masks", "_plain", "_size", "_slashes", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._size = len(text)
        self._masks: dict[object, int] = {}
        self._slashes = self._places("/") if "/" in text else 0
        self._plain = ((1 << self._size) - 1) & ~self._slashes

    def run(self, nodes: list[Node], reached: int) -> int:
        """Return the positions reached after a sequence, given those before it."""
        for kind, what in nodes:
            if not reached:
                return 0
            if kind == "text":
                reached = (reached & self._places(what)) << len(what)  # type: ignore[arg-type]
            elif kind == "one":
                reached = (reached & self._plain) << 1
            elif kind == "star":
                reached = self._spread(reached)
            elif kind == "deep":
                reached = self._after(reached)
            elif kind == "dirs":
                reached |= self._after(reached) & (self._slashes << 1)
            elif kind == "class":
                reached = (reached & self._members(what)) << 1  # type: ignore[arg-type]
            elif kind == "either":
                before, reached = reached, 0
                for branch in what:  # type: ignore[attr-defined]
                    reached |= self.run(branch, before)
            else:
                reached = self._except(what, reached)  # type: ignore[arg-type]
        return reached

    def _places(self, text: object) -> int:
        mask = self._masks.get(text)
        if mask is None:
            mask = 0
            wanted = str(text)
            at = self._text.find(wanted)
            while at >= 0:
                mask |= 1 << at
                at = self._text.find(wanted, at + 1)
            self._masks[text] = mask
        return mask

    def _members(self, klass: tuple[bool, tuple[tuple[str, str], ...]]) -> int:
        mask = self._masks.get(klass)
        if mask is None:
            mask = 0
            negated, ranges = klass
            for at, char in enumerate(self._text):
                if char != "/" and negated != any(low <= char <= high for low, high in ranges):
                    mask |= 1 << at
            self._masks[klass] = mask
        return mask

    def _after(self, reached: int) -> int:
        """Every position from the lowest reached one on."""
        lowest = reached & -reached
        return ((1 << (self._size + 1)) - 1) & ~(lowest - 1)

    def _spread(self, reached: int) -> int:
        """Every position that can be come to without crossing a slash."""
        if not self._slashes:
            return self._after(reached)
        open_to = self._plain << 1
        step = 1
        while step <= self._size:  # doubles the distance covered in each turn
            reached |= open_to & (reached << step)
            open_to &= open_to << step
            step <<= 1
        return reached

    def _except(self, branches: list[list[Node]], reached: int) -> int:
        out = 0
        while reached:
            here = reached & -reached
            reached ^= here
            taken = 0
            for branch in branches:
                taken |= self.run(branch, here)
            out |= self._spread(here) & ~taken
        return out


class _Parser:
    __slots__ = ("_at", "_depth", "_negated", "_pattern")

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._negated = False

    def parse(self) -> list[Node]:
        return self._sequence("")

    def _sequence(self, enders: str) -> list[Node]:
        """Read elements up to one of `enders`, which is left unread."""
        pattern = self._pattern
        nodes: list[Node] = []
        text = ""
        while self._at < len(pattern):
            char = pattern[self._at]
            if char in enders:
                break
            special = char in "*?[{" or pattern.startswith("!(", self._at)
            if special and text:
                nodes.append(("text", text))
                text = ""
            if char == "*":
                self._stars(nodes, enders)
            elif char == "?":
                self._at += 1
                nodes.append(("one", None))
            elif char == "[":
                nodes.append(("class", self._class()))
            elif char == "{":
                nodes.append(("either", self._branches(1, ",", "}")))
            elif special:
                if self._negated:
                    raise self._bad("!( inside of !( is not supported")
                self._negated = True
                nodes.append(("except", self._branches(2, "|", ")")))
                self._negated = False
            else:
                text += self._escaped() if char == "\\" else char
                self._at += 1
        if text:
            nodes.append(("text", text))
        return nodes

    def _stars(self, nodes: list[Node], enders: str) -> None:
        pattern = self._pattern
        start = self._at
        while self._at < len(pattern) and pattern[self._at] == "*":
            self._at += 1
        whole_name = self._at - start == 2 and not enders and (start == 0 or pattern[start - 1] == "/")
        if whole_name and self._at == len(pattern):
            nodes.append(("deep", None))
        elif whole_name and pattern[self._at] == "/":
            self._at += 1
            nodes.append(("dirs", None))
        else:
            nodes.append(("star", None))

    def _escaped(self) -> str:
        self._at += 1
        if self._at >= len(self._pattern):
            raise self._bad("nothing follows the backslash")
        return self._pattern[self._at]

    def _branches(self, opening: int, separator: str, closing: str) -> list[list[Node]]:
        start = self._at
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._bad(f"nested more than {_DEEPEST} deep")
        self._at += opening
        branches = [self._sequence(separator + closing)]
        while self._at < len(self._pattern) and self._pattern[self._at] == separator:
            self._at += 1
            branches.append(self._sequence(separator + closing))
        if self._at >= len(self._pattern):
            self._at = start
            raise self._bad(f"{self._pattern[start : start + opening]} is never closed by {closing}")
        self._at += 1
        self._depth -= 1
        return branches

    def _class(self) -> tuple[bool, tuple[tuple[str, str], ...]]:
        pattern, start = self._pattern, self._at
        self._at += 1
        negated = pattern[self._at : self._at + 1] in {"!", "^"}
        self._at += negated
        first = self._at
        ranges: list[tuple[str, str]] = []
        while self._at < len(pattern):
            if pattern[self._at] == "]" and self._at > first:
                self._at += 1
                return negated, tuple(ranges)
            low = high = self._member()
            if pattern[self._at : self._at + 1] == "-" and pattern[self._at + 1 : self._at + 2] not in {
                "]",
                "",
            }:
                self._at += 1
                high = self._member()
                if high < low:
                    raise self._bad(f"the range {low}-{high} runs backwards")
            ranges.append((low, high))
        self._at = start
        raise self._bad("[ is never closed by ]")

    def _member(self) -> str:
        char = self._escaped() if self._pattern[self._at] == "\\" else self._pattern[self._at]
        self._at += 1
        return char

    def _bad(self, reason: str) -> BadPattern:
        return BadPattern(f"pattern {self._pattern!r}, position {self._at + 1}: {reason}")
