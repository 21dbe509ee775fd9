"""A model that scores many records at once: reads "accounts", writes to "churn" how likely each one is to leave.

The model is loaded once per process for calls, and takes up to 64 accounts in one go. What it said is kept: when a new
version is deployed, a replay still delivers what the old one said.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import lowtide as lt

MEANS = (24.0, 40.0, 1.5)
SPREADS = (18.0, 25.0, 2.0)
WEIGHTS = (-0.9, 0.3, 1.1)
BIAS = -1.2
AT_ONCE = 64


@dataclass(frozen=True)
class Account:
    id: str
    months: int
    euros: float
    complaints: int


@dataclass(frozen=True)
class Churn:
    id: str
    chance: float


class Model:
    """A logistic regression over months, euros and complaints."""

    def __init__(self) -> None:
        self._means, self._spreads, self._weights = map(np.array, (MEANS, SPREADS, WEIGHTS))

    def chances(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the chance of each row, float64[n], of float64[n, 3]."""
        # By row, not by a matrix product: its last digits may change with the number of rows.
        scores = ((rows - self._means) / self._spreads * self._weights).sum(axis=1) + BIAS
        chances: npt.NDArray[np.float64] = 1 / (1 + np.exp(-scores))
        return chances


def churn_of(accounts: list[Account], model: Model) -> list[Churn]:
    rows = np.array([(account.months, account.euros, account.complaints) for account in accounts], np.float64)
    chances = np.round(model.chances(rows), 4)
    return [Churn(account.id, float(chance)) for account, chance in zip(accounts, chances, strict=True)]


flow = lt.Flow("churn", dead_letters=lt.kafka("unreadable", lt.raw()))
(
    flow.read("accounts", lt.kafka("accounts", lt.json(Account)))
    .call("model", churn_of, resource=Model, batch=AT_ONCE, within=lt.millis(5), timeout=lt.seconds(5))
    .write("churn", lt.kafka("churn", lt.json(Churn), key="id"))
)

if __name__ == "__main__":
    lt.main(flow)
