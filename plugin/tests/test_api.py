"""What a user imports: names that resolve, and subjects of a subscription."""

from __future__ import annotations

from typing import Any

import pytest

import lowtide as lt


def test_every_public_name_is_there() -> None:
    assert [name for name in lt.__all__ if not hasattr(lt, name)] == []


def test_what_can_be_subscribed_to_is_a_value_that_the_control_api_takes_as_text() -> None:
    subjects = [
        lt.delivered(),
        lt.committed(),
        lt.min_time(),
        lt.min_time("count"),
        lt.done("indexed", 7),
        lt.begun("seen", 7),
    ]
    texts = ["delivered", "commit", "min_time", "segment:count", "done:indexed:7", "done:seen/begun:7"]
    assert [subject.text for subject in subjects] == texts


def test_text_is_no_subject() -> None:
    about: Any = "delivered"
    with pytest.raises(lt.FlowError, match=r"(?s)subscribe takes subjects, found 'delivered'.*lt\.delivered"):
        lt.subscribe("orders", about)
