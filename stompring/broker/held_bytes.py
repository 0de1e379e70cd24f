"""What transactions hold until they are committed: counted for each connection and for the broker.

No queue has these messages yet, so that `Room` does not know of them, and must not: a COMMIT that waited for room
which its own transaction takes up would wait for ever.
"""

from __future__ import annotations

from stompring.errors import LimitReached

#: What a SEND in a transaction costs beyond its body and its headers: the step, and what is kept of its frame. Measured
#: (benchmarks.micro.sizes): 300 where all have the same headers, and more where they have not.
STEP_OVERHEAD = 400


class HeldBytes:
    """Bytes held, with a limit. A limit is reached, not passed: the message that reaches it was the last one.

    One for the broker (``whole`` None), and one for each connection, which counts there as well.
    """

    __slots__ = ("bytes", "limit", "whole")

    def __init__(self, limit: int, whole: HeldBytes | None = None) -> None:
        self.bytes = 0
        self.limit = limit
        self.whole = whole

    @property
    def full(self) -> bool:
        """Whether nothing more may be held."""
        return 0 <= self.limit <= self.bytes

    def hold(self, size: int) -> None:
        """Hold ``size`` more bytes. Raises `LimitReached`."""
        if self.full:
            raise LimitReached(
                f"The open transactions of this connection hold {self.bytes} bytes, and the limit is "
                f"{self.limit} (maxTransactionBytes)",
                "maxTransactionBytes",
            )
        whole = self.whole
        if whole is not None:
            if whole.full:
                raise LimitReached(
                    f"All open transactions together hold {whole.bytes} bytes, and the limit is {whole.limit} "
                    "(global-max-transaction-size)",
                    "global-max-transaction-size",
                )
            whole.bytes += size
        self.bytes += size

    def release(self, size: int) -> None:
        """Give back what was held."""
        self.bytes -= size
        if self.whole is not None:
            self.whole.bytes -= size
