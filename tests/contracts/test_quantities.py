"""Amounts of resources, read as the API server reads them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_api import quantities

FACTORS = {
    "m": Decimal("0.001"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


@given(st.from_regex(quantities.PATTERN, fullmatch=True))
def test_the_published_pattern_is_what_is_accepted(text):
    assert quantities.amount(text.rstrip("\n")) >= 0


@given(st.integers(0, 999_999), st.sampled_from(sorted(FACTORS)))
def test_whole_amounts_are_read_exactly(number, unit):
    assert quantities.amount(f"{number}{unit}") == number * FACTORS[unit]


@given(st.integers(0, 10**12 - 1))
def test_numbers_are_amounts_whether_quoted_or_not(number):
    assert quantities.amount(number) == quantities.amount(str(number)) == number


@pytest.mark.parametrize("text", ["", "Gi", "-1", "+1", "1gi", "1 Gi", "1e3", ".5", "1.", "01", "1Gi\n", "1KiB"])
def test_near_misses_are_refused_with_what_is_required_and_what_was_found(text):
    with pytest.raises(ValueError, match=r"an amount like 500m, 2 or 16Gi is required") as caught:
        quantities.amount(text)
    assert repr(text) in str(caught.value)
