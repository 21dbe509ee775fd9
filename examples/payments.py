"""Finds large payments: reads the topic "payments", writes the topic "large-payments", one message per card as its key.

Messages that are no payment go to the topic "unreadable" as they came, with the reason in their headers.
"""

from dataclasses import dataclass

import lowtide as lt
from lowtide import Flow, json, kafka, raw

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


flow = Flow("payments", dead_letters=kafka("unreadable", raw()))
(
    flow.read("payments", kafka("payments", json(Payment)))
    .filter(is_large)
    .key_by("card")
    .map(alert)
    .write("alerts", kafka("large-payments", json(Alert), key="card"))
)

if __name__ == "__main__":
    lt.main(flow)
