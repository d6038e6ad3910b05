from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.values.naming import (
    NAME,
    TAG_VALUE,
    closest_match,
    derived_key,
    did_you_mean,
    digest,
    generated_name,
    lock_name,
    machine_id,
    tag_value,
    token,
    unknown_word,
)

any_text = st.text(alphabet=st.characters(), max_size=100)  # lone surrogates too: a damaged argument has them


@given(any_text)
def test_a_tag_value_always_fits(text: str) -> None:
    assert TAG_VALUE.fullmatch(tag_value(text))


@given(st.from_regex(r"[a-z0-9_][a-z0-9_-]{0,60}[a-z0-9_]", fullmatch=True))
def test_what_fits_already_stays(text: str) -> None:
    assert tag_value(text) == text


@given(any_text)
def test_a_tag_value_of_a_tag_value_is_itself(text: str) -> None:
    assert tag_value(tag_value(text).strip("-")) == tag_value(text).strip("-")


@given(any_text, any_text, st.integers(0, 10**6))
def test_tokens_and_ids_fit_every_cloud(ledger: str, key: str, attempt: int) -> None:
    assert len(token(ledger, key, attempt)) <= 64
    assert token(ledger, key, attempt).isalnum()
    assert TAG_VALUE.fullmatch(machine_id(ledger, key))
    assert NAME.fullmatch(machine_id(ledger, key))


@given(st.lists(any_text, max_size=4), st.lists(any_text, max_size=4))
def test_a_digest_tells_its_parts_apart(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


def test_a_digest_knows_where_a_part_ends() -> None:
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", ""), digest("1:a")}) == 5


@given(any_text, any_text, st.integers(0, 50))
def test_every_attempt_has_its_own_token_and_every_retry_the_same(ledger: str, key: str, attempt: int) -> None:
    assert token(ledger, key, attempt) == token(ledger, key, attempt)
    assert token(ledger, key, attempt) != token(ledger, key, attempt + 1)
    assert machine_id(ledger, key)[3:] not in token(ledger, key, attempt)


@given(any_text, st.integers(0, 60))
def test_a_made_name_is_never_taken(key: str, machines: int) -> None:
    taken: set[str] = set()
    for _ in range(machines):
        taken.add(generated_name(key, taken))
    name = generated_name(key, taken)
    assert name not in taken
    assert NAME.fullmatch(name)
    assert generated_name(key, taken) == name


class EveryPair(set[str]):
    """All names of two words are taken, and those that were added."""

    def __contains__(self, name: object) -> bool:
        return str(name).count("-") == 1 or super().__contains__(name)


@pytest.mark.soak
def test_there_is_a_name_for_more_machines_than_there_are_pairs_at_hand() -> None:
    taken = EveryPair()
    for _ in range(200):
        name = generated_name("one key", taken)
        assert NAME.fullmatch(name)
        assert name not in taken
        taken.add(name)
    assert len(taken) == 200


@pytest.mark.parametrize(
    ("word", "meant"), [("loca", "local"), ("LOCAL", "local"), ("aws2", "aws"), ("zzzz", None), ("", None)]
)
def test_a_near_word_is_found(word: str, meant: str | None) -> None:
    assert closest_match(word, {"local", "aws", "gcp"}) == meant


def test_a_near_word_is_found_and_returned_as_it_is_written() -> None:
    assert closest_match("nc64ads_a100_V4", ["Standard_NC64ads_A100_v4"]) == "Standard_NC64ads_A100_v4"
    assert closest_match("krv", ["USD", "KRW"]) == "KRW"


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("terminate", ["estimate", "extend", "down"], None),
        ("delete", ["ledger", "exec"], None),
        ("nite", ["nightly", "never"], None),
        ("class", ["classroom", "default"], "classroom"),
        ("fox", ["amber-fox", "blue-otter"], "amber-fox"),
        ("dwon", ["down", "show"], "down"),
        ("us-est-1", ["us-east-1", "us-west-2"], "us-east-1"),
    ],
)
def test_a_word_that_is_far_from_all_is_not_suggested_and_one_with_the_word_in_it_is(
    word: str, known: list[str], meant: str | None
) -> None:
    assert closest_match(word, known) == meant


def test_an_unknown_word_is_answered_with_the_close_one_else_with_all() -> None:
    close = unknown_word("No colour is called 'gren'", "gren", ["red", "green"], field="--colour")
    assert close.message == "No colour is called 'gren'; did you mean 'green'?"
    assert (close.field, close.value, close.next) == ("--colour", "gren", "Use one of: red, green.")
    far = unknown_word("No colour is called 'x'", "x", ["red", "green"], field="c", value="X", use="Use {}.")
    assert (far.message, far.value, far.next) == ("No colour is called 'x'.", "X", "Use one of: red, green.")
    named = unknown_word("None", "gren", ["green"], field="c", use="Use {}.", next="See them.")
    assert (named.message, named.next) == ("None; did you mean 'green'?", "Use green.")
    assert unknown_word("None", "x", ["green"], field="c", use="Use {}.", next="See them.").next == "See them."
    assert did_you_mean(None) == ""


@given(st.from_regex(r"[0-9a-f]{20,64}", fullmatch=True), st.integers(0, 10**6))
def test_all_generations_of_one_request_share_a_lock(fingerprint: str, generation: int) -> None:
    key = derived_key(fingerprint, generation)
    assert tag_value(key) == key
    assert lock_name(key) == lock_name(derived_key(fingerprint, generation + 1))


@given(any_text, any_text)
def test_two_given_keys_never_share_a_lock(one: str, other: str) -> None:
    assert (lock_name(one) == lock_name(other)) == (one == other)
