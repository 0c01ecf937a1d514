"""Counts of cases that are printed as they end."""

from __future__ import annotations

from dataclasses import dataclass

from lab.process import say


@dataclass
class Counts:
    """What became of the cases."""

    passed: int = 0
    failed: int = 0

    def report(self, case: str, complaint: str | None, detail: str) -> None:
        """Counts and prints one case."""
        if complaint is None:
            self.passed += 1
            say(f"ok    {case}  {detail}")
        else:
            self.failed += 1
            say(f"FAIL  {case}  {complaint}")
