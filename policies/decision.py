"""The one answer that every rule of this house gives: yes or no, and why (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reason.

    Attributes:
        reason: one sentence that a caller may read: what was asked, what is the rule, what would do.
        rule: the name of the rule or setting that decided.
    """

    verdict: Verdict
    reason: str
    rule: str | None = None

    @property
    def allowed(self) -> bool:
        return self.verdict is Verdict.ALLOW
