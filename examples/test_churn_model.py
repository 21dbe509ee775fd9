"""The flow here and now, against the model's formula; how records come together changes nothing."""

import math
import random

from churn_model import BIAS, MEANS, SPREADS, WEIGHTS, Account, Churn, Model, churn_of, flow

DICE = random.Random(3)
ACCOUNTS = [
    Account(str(number), DICE.randint(0, 80), DICE.uniform(5, 120), DICE.randint(0, 9)) for number in range(100)
]


def chance(account: Account) -> float:
    values = (account.months, account.euros, account.complaints)
    parts = zip(values, MEANS, SPREADS, WEIGHTS, strict=True)
    return 1 / (1 + math.exp(-BIAS - sum((value - mean) / spread * weight for value, mean, spread, weight in parts)))


def test_each_account_has_the_chance_that_the_formula_gives() -> None:
    found = flow.run_locally(accounts=ACCOUNTS)["churn"]
    assert [each.id for each in found] == [account.id for account in ACCOUNTS]
    assert all(abs(each.chance - chance(account)) < 1e-4 for each, account in zip(found, ACCOUNTS, strict=True))
    chances = [each.chance for each in found]
    assert min(chances) < 0.1, "some stay"
    assert max(chances) > 0.9, "some leave"


def test_a_chance_does_not_hang_on_the_accounts_beside_it() -> None:
    together: list[Churn] = churn_of(ACCOUNTS, Model())
    assert together == [alone for account in ACCOUNTS for alone in churn_of([account], Model())]
