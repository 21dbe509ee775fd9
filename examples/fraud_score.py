"""Scores payments for fraud: reads "payments", asks an HTTP service about each one, and writes "scored".

The service gets how many payments the card has made so far, and the call's key as its Idempotency-Key: asked again
after a crash, it knows the question. Where it does not answer in three tries, a rule decides.
"""

import json
import os
import urllib.request
from dataclasses import dataclass, replace

import lowtide as lt

SERVICE = os.environ.get("FRAUD_SERVICE", "http://127.0.0.1:8099/score")
TIMEOUT_S = 2.0
LARGE_CENTS = 100_000


@dataclass(frozen=True)
class Payment:
    id: str
    card: str
    cents: int
    of_card: int = 0


@dataclass(frozen=True)
class Scored:
    id: str
    card: str
    of_card: int
    risk: float
    by: str


def count_of_card(count: int, payment: Payment) -> tuple[int, Payment]:
    return count + 1, replace(payment, of_card=count + 1)


def ask(payment: Payment, key: str) -> Scored:
    """Ask the service. It runs in a thread of a process for calls, so it may wait, and fail."""
    question = json.dumps({"card": payment.card, "cents": payment.cents, "of_card": payment.of_card}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    with urllib.request.urlopen(urllib.request.Request(SERVICE, question, headers), timeout=TIMEOUT_S) as answer:
        return scored(payment, json.load(answer)["risk"], "service")


def by_rule(payment: Payment, _: lt.CallFailed) -> Scored:
    """Decide without the service; what came of it is kept as an answer is."""
    return scored(payment, 0.9 if payment.cents >= LARGE_CENTS else 0.1, "rule")


def scored(payment: Payment, risk: float, by: str) -> Scored:
    return Scored(payment.id, payment.card, payment.of_card, risk, by)


flow = lt.Flow("fraud-score", dead_letters=lt.kafka("unreadable", lt.raw()))
(
    flow.read("payments", lt.kafka("payments", lt.json(Payment)))
    .key_by("card")
    .scan("of-card", count_of_card, 0)
    .call("score", ask, timeout=lt.seconds(TIMEOUT_S), retries=2, failed="value", otherwise=by_rule)
    .write("scored", lt.kafka("scored", lt.json(Scored), key="card"))
)

if __name__ == "__main__":
    lt.main(flow)
