"""When it is worth a line in the log that something fails again and again; values in, a value out."""

from __future__ import annotations

__all__ = ["SAY_AGAIN_S", "Trouble"]

SAY_AGAIN_S = 300.0
"""How often it is said that it goes on."""


class Trouble:
    """What goes wrong for a while: said when it begins or becomes another, every `SAY_AGAIN_S`, and when it is over.

    Attributes:
        text: what it is; empty while there is none.
    """

    def __init__(self) -> None:
        self.text = ""
        self._said_s = 0.0

    def goes_on(self, error: Exception, now_s: float) -> bool:
        """Take down that it has gone wrong; whether that is to be said.

        Args:
            error: as what.
            now_s: a monotonic clock's time.
        """
        text = str(error) or type(error).__name__
        if text == self.text and now_s - self._said_s < SAY_AGAIN_S:
            return False
        self.text, self._said_s = text, now_s
        return True

    def is_over(self) -> bool:
        """Take down that it has gone well; whether that is to be said."""
        text, self.text = self.text, ""
        return bool(text)
