"""Redaction: which settings are hidden, and what of a text is left."""

from __future__ import annotations

import pytest

from lowtide_snapshots.redaction import HIDDEN, is_secret, redacted, shown, without


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "x"),
        ("spark.hadoop.fs.s3a.access.key", "x"),
        ("spark.executorEnv.AWS_ACCESS_KEY_ID", "x"),
        ("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "x"),
        ("spark.ssl.keyPassword", "x"),
        ("kafka.sasl.jaas.config", "x"),
        ("spark.driver.extraJavaOptions", "-Xss4m -Djavax.net.ssl.keyStorePassword=x"),
        ("spark.executor.extraJavaOptions", "-Dvault.token.now=x"),
    ],
)
def test_a_secret_is_known_by_its_name_or_by_what_its_value_assigns(name: str, value: str) -> None:
    assert is_secret(name, value)
    assert shown(name, value) == HIDDEN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.executor.instances", "4"),
        ("kafka.sasl_password_file", "/etc/word"),
        ("kafka.sasl_password_env", "WORD"),
        ("job.submission", "airflow:refresh_tokens/run/task"),
        ("spark.redaction.regex", "secret|password"),
        ("spark.driver.extraJavaOptions", "-Xss4m"),
    ],
)
def test_what_is_no_secret_is_shown(name: str, value: str) -> None:
    assert shown(name, value) == value


def test_a_jobs_own_rule_hides_more_and_never_less() -> None:
    assert is_secret("spark.lake.pin", "1234", "pin$")
    assert is_secret("spark.lake", "pin 1234", "pin")
    assert is_secret("spark.ssl.keyPassword", "x", "nothing")
    assert is_secret("spark.lake", "x", "(")


def test_a_command_line_shows_no_secret_and_says_which_it_hides() -> None:
    arguments = ["spark-submit", "--conf", "spark.redaction.regex=pin", "--conf", "spark.pin=12345678", "flow.py"]
    seen, hidden = redacted([*arguments, "--set", "a.token=abcdefgh", "a=b"])
    assert seen == [*arguments[:4], f"spark.pin={HIDDEN}", "flow.py", "--set", f"a.token={HIDDEN}", "a=b"]
    assert hidden == ["12345678", "abcdefgh"]


def test_a_hidden_value_is_cut_out_of_a_text_unless_it_may_be_a_word() -> None:
    assert without("abcdefgh-12 and abcdefgh: true", ["abcdefgh", "abcdefgh-12", "true"]) == (
        f"{HIDDEN} and {HIDDEN}: true"
    )
