"""The flow here and now: no Spark, no services."""

from payments import Alert, Payment, flow


def test_large_payments_are_reported_in_their_order() -> None:
    payments = [Payment("a", 99_999, "book shop"), Payment("b", 250_000, "jeweller"), Payment("b", 100_000, "garage")]
    delivered = flow.run_locally(payments=payments)
    assert delivered["alerts"] == [Alert("b", "2,500.00 at jeweller"), Alert("b", "1,000.00 at garage")]


def test_what_is_no_payment_goes_to_the_dead_letters() -> None:
    delivered = flow.run_locally(
        payments=[b'{"card": "a", "cents": "many"}', b'{"card":"a","cents":200000,"shop":"x"}']
    )
    assert [letter.value for letter in delivered["dead-letters"]] == [b'{"card": "a", "cents": "many"}']
    assert delivered["alerts"] == [Alert("a", "2,000.00 at x")]
