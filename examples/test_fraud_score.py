"""The flow here and now: against a service that fails, against a stub, and with none at all."""

import threading
from collections import Counter
from collections.abc import Iterator

import fraud_score
import pytest
from fraud_score import LARGE_CENTS, Payment, Scored, flow, scored
from fraud_service import FraudService

import lowtide as lt
from lowtide.testing import Stub

PAYMENTS = [Payment(str(number), f"card {number % 3}", 40_000 * (number % 4)) for number in range(30)]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[FraudService]:
    with FraudService(resets=0.2, seed=4) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        monkeypatch.setattr(fraud_score, "SERVICE", service.url)
        yield service
        service.shutdown()


def counted(payments: list[Payment]) -> list[int]:
    """Count the payments of each one's card."""
    seen: Counter[str] = Counter()
    counts = []
    for payment in payments:
        seen[payment.card] += 1
        counts.append(seen[payment.card])
    return counts


def test_a_service_that_resets_connections_gives_each_payment_one_risk(service: FraudService) -> None:
    found: list[Scored] = flow.run_locally(payments=PAYMENTS)["scored"]
    assert [each.id for each in found] == [payment.id for payment in PAYMENTS]
    assert [each.of_card for each in found] == counted(PAYMENTS)
    assert max(service.asked.values()) > 1, "some tries were reset, and made again with the same key"
    assert len(service.asked) == len(PAYMENTS)
    assert sum(each.by == "service" for each in found) > len(PAYMENTS) // 2
    assert {each.risk for each in found if each.by == "service"} <= set(service.risks.values())


def test_the_same_failures_give_the_same_scores() -> None:
    def answers() -> Stub:
        return Stub(lambda payment: scored(payment, payment.of_card / 100, "service"), seed=7, fails=0.6)

    found = flow.run_locally(payments=PAYMENTS, answers={"score": answers()})["scored"]
    assert found == flow.run_locally(payments=PAYMENTS, answers={"score": answers()})["scored"]
    assert {each.by for each in found} == {"service", "rule"}


def test_without_an_answer_the_rule_decides() -> None:
    def gone(_: Payment) -> Scored:
        raise lt.CallRefused("closed for today")

    payments = [Payment("1", "a", LARGE_CENTS), Payment("2", "a", LARGE_CENTS - 1)]
    assert flow.run_locally(payments=payments, answers={"score": gone})["scored"] == [
        Scored("1", "a", 1, 0.9, "rule"),
        Scored("2", "a", 2, 0.1, "rule"),
    ]
