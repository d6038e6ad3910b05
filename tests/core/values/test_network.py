"""Networks and jump hosts as they are typed: what is meant, what is refused and how that is said."""

from __future__ import annotations

import pytest

from cloudgpu.core.values.network import JumpHost, covers, network_text, parse_cidr, parse_jump_host
from cloudgpu.errors import InvalidRequest


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("203.0.113.7", "203.0.113.7/32"),
        (" 203.0.113.7/32 ", "203.0.113.7/32"),
        ("203.0.113.0/24", "203.0.113.0/24"),
        ("10.0.0.0/8", "10.0.0.0/8"),
    ],
)
def test_an_address_alone_is_a_network_of_one(typed, meant):
    assert parse_cidr(typed, "--ssh-from") == meant


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("", "not an IPv4 address or network"),
        ("home", "not an IPv4 address or network"),
        ("203.0.113", "not an IPv4 address or network"),
        ("203.0.113.256", "not an IPv4 address or network"),
        ("203.0.113.07", "not an IPv4 address or network"),
        ("203.0.113.7/33", "not an IPv4 address or network"),
        ("203.0.113.7/", "not an IPv4 address or network"),
        ("203.0.113.7/255.255.255.0", "not an IPv4 address or network"),
        ("\u0662\u0660\u0663.0.113.7", "not an IPv4 address or network"),
        ("2001:db8::7/128", "reached over IPv4"),
        ("::/0", "reached over IPv4"),
        ("203.0.113.7/24", "that network is 203.0.113.0/24"),
        ("0.0.0.0/32", "is nobody's address"),
        ("0.0.0.0/0", "would let everybody try"),
        ("0.0.0.0/1", "would let 2,147,483,648 addresses try"),
        ("10.0.0.0/7", "would let 33,554,432 addresses try"),
    ],
)
def test_what_lets_in_nobody_or_too_many_is_refused_with_the_way_out(typed, words):
    with pytest.raises(InvalidRequest) as caught:
        parse_cidr(typed, "--from")
    assert (caught.value.field, caught.value.exit_code) == ("--from", 2)
    assert words in caught.value.message
    assert caught.value.next


def test_an_address_inside_a_network_is_answered_with_both_that_may_be_meant():
    with pytest.raises(InvalidRequest) as caught:
        parse_cidr("203.0.113.7/24", "--ssh-from")
    assert "203.0.113.0/24" in caught.value.next
    assert "203.0.113.7/32" in caught.value.next


def test_everybody_is_let_in_only_where_that_was_asked_for():
    with pytest.raises(InvalidRequest) as caught:
        parse_cidr("0.0.0.0/0", "--ssh-from")
    assert "--ssh-from-anywhere" in caught.value.next
    assert parse_cidr("0.0.0.0/0", "--ssh-from", any_source=True) == "0.0.0.0/0"


@pytest.mark.parametrize(
    ("network", "other", "said"),
    [
        ("203.0.113.0/24", "203.0.113.7/32", True),
        ("203.0.113.7/32", "203.0.113.7/32", True),
        ("0.0.0.0/0", "203.0.113.7/32", True),
        ("203.0.113.7/32", "203.0.113.0/24", False),
        ("203.0.113.8/32", "203.0.113.7/32", False),
        ("::/0", "203.0.113.7/32", False),
        ("pl-12345", "203.0.113.7/32", False),
    ],
)
def test_one_network_covers_another_or_not(network, other, said):
    assert covers(network, other) is said


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("bastion", JumpHost("bastion")),
        ("ada@bastion.example.org", JumpHost("bastion.example.org", "ada")),
        ("ada@203.0.113.7:2222", JumpHost("203.0.113.7", "ada", 2222)),
        ("ada@[2001:db8::7]:22", JumpHost("2001:db8::7", "ada", 22)),
    ],
)
def test_a_jump_host_is_user_host_and_port(typed, meant):
    assert parse_jump_host(typed) == meant
    assert str(meant) == typed


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "@bastion",
        "ada@",
        "ada@bastion:",
        "ada@bastion:0",
        "ada@bastion:65536",
        "ada@bastion:ssh",
        "-oProxyCommand=evil",
        "ada@-bastion",
        "-ada@bastion",
        "ada@bastion;evil",
        "ada@bastion evil",
        "ada@$(evil)",
        "ada@bastion%h",
        "ada@bastion\nProxyCommand evil",
        "a@b@c",
        "2001:db8::7",
    ],
)
def test_what_could_be_read_as_an_option_or_a_command_is_no_jump_host(typed):
    with pytest.raises(InvalidRequest) as caught:
        parse_jump_host(typed)
    assert caught.value.field == "--jump"
    assert caught.value.next


def test_a_jump_host_is_handed_to_ssh_as_options_and_destination():
    assert JumpHost("bastion").ssh_arguments() == ("bastion",)
    assert JumpHost("2001:db8::7", "ada", 2222).ssh_arguments() == ("-p", "2222", "ada@2001:db8::7")


@pytest.mark.parametrize(
    ("network", "words"),
    [("203.0.113.7/32", "203.0.113.7"), ("203.0.113.0/24", "203.0.113.0/24"), ("0.0.0.0/0", "everybody")],
)
def test_a_network_is_said_in_words(network, words):
    assert network_text(network) == words
