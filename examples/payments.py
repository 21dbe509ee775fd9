"""Finds large payments: reads the topic "payments", writes the topic "large-payments", one message per card as its key.

Messages that are not payments go to the topic "unreadable" unchanged, with the reason in their headers.
"""

from dataclasses import dataclass

import lowtide as lt

LARGE_CENTS = 100_000


@dataclass(frozen=True)
class Payment:
    card: str
    cents: int
    shop: str


@dataclass(frozen=True)
class Alert:
    card: str
    text: str


def is_large(payment: Payment) -> bool:
    return payment.cents >= LARGE_CENTS


def alert(payment: Payment) -> Alert:
    return Alert(payment.card, f"{payment.cents / 100:,.2f} at {payment.shop}")


flow = lt.Flow("payments", dead_letters=lt.kafka("unreadable", lt.raw()))
(
    flow.read("payments", lt.kafka("payments", lt.json(Payment)))
    .filter(is_large)
    .key_by("card")
    .map(alert)
    .write("alerts", lt.kafka("large-payments", lt.json(Alert), key="card"))
)

if __name__ == "__main__":
    lt.main(flow)
