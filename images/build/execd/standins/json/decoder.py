"""Stand in for `json.decoder`: what the C scanner raises, without `re`.

`_json.make_scanner` imports this module at the moment it meets malformed text.
The attributes are those of the real class (docs.python.org, `json.JSONDecodeError`).
"""


class JSONDecodeError(ValueError):
    """Malformed JSON text, and where."""

    def __init__(self, msg: str, doc: str, pos: int) -> None:
        lineno = doc.count("\n", 0, pos) + 1
        colno = pos - doc.rfind("\n", 0, pos)
        ValueError.__init__(self, f"{msg}: line {lineno} column {colno} (char {pos})")
        self.msg = msg
        self.doc = doc
        self.pos = pos
        self.lineno = lineno
        self.colno = colno

    def __reduce__(self) -> tuple[type, tuple[str, str, int]]:
        return self.__class__, (self.msg, self.doc, self.pos)
