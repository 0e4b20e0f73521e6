"""A window of simulated time."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.errors import InputError
from headway.domain.limits import HORIZON_NS, scaled


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open interval of simulated time in nanoseconds; by default all of it."""

    from_ns: int = 0
    to_ns: int = HORIZON_NS

    def __post_init__(self) -> None:
        if not 0 <= self.from_ns < self.to_ns:
            raise InputError(
                f"the window must begin before it ends: from {self.from_ns / 1e9:g} s "
                f"to {self.to_ns / 1e9:g} s."
            )

    @classmethod
    def of_seconds(cls, from_s: float | None = None, to_s: float | None = None) -> Window:
        """Make a window from seconds; None leaves that side open."""
        return cls(
            0 if from_s is None else scaled(from_s, 1e9, "from", 0, HORIZON_NS, "seconds"),
            HORIZON_NS if to_s is None else scaled(to_s, 1e9, "to", 0, HORIZON_NS, "seconds"),
        )

    def clipped(self, last_ns: int) -> Window:
        """Return the window without what lies after the end of a run.

        Raises:
            InputError: The run ends before the window begins.
        """
        if self.from_ns >= last_ns:
            raise InputError(
                f"the run ends at {last_ns / 1e9:g} s; the window begins at "
                f"{self.from_ns / 1e9:g} s."
            )
        return Window(self.from_ns, min(self.to_ns, last_ns))

    def __str__(self) -> str:
        digits = min(9, max(0, 12 - len(str(self.to_ns - self.from_ns))))
        return f"{self.from_ns / 1e9:,.{digits}f} s to {self.to_ns / 1e9:,.{digits}f} s"
