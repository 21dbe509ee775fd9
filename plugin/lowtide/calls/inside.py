"""The names that a call's function uses: its call key, and the refusal that ends its tries."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from lowtide.errors import FlowError


class CallRefused(Exception):
    """Raised by a call's function: the service has refused the record, so that another try would be of no use.

    A function that takes batches puts it into its list, in the place of the record's result; raised, it refuses the
    whole batch.
    """


class Calling(NamedTuple):
    """A call under way.

    Attributes:
        step: The step's name.
        keys: The call key of each record, one where there is no batch.
    """

    step: str
    keys: tuple[str, ...]


calling: ContextVar[Calling | None] = ContextVar("calling", default=None)
"""The call that this task or thread is in."""


def call_key() -> str:
    """Return the call key of the record that the function is called with: the same in every try and every life.

    A service that takes an idempotency key gives each effect once by it.

    Raises:
        FlowError: it is called outside a call's function, or in one that takes batches.

    Example:
        >>> async def charged(order: Order) -> Total:
        ...     headers = {"Idempotency-Key": lt.call_key()}
        ...     return Total(order.user, len(headers["Idempotency-Key"]))
        >>> orders.call("charged", charged, timeout=lt.seconds(2)).write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5)])["totals"]
        [Total(user='ada', amount=32)]
    """
    now = calling.get()
    if now is None:
        raise FlowError("lt.call_key() is called outside a call", way_out="call it in the function of a call step")
    if len(now.keys) != 1:
        raise FlowError(
            f'lt.call_key() is called in step "{now.step}", whose function takes batches',
            way_out="give the function a parameter named keys: it gets the list of them",
        )
    return now.keys[0]
