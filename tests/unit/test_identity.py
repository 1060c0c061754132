"""Identities are the same on every worker, and priority bands keep the order of priorities."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.frontier.identity import band_of, digest, instance_id, page_key, queue_of


@given(st.integers(), st.integers())
def test_a_higher_priority_never_gets_a_lower_band(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert band_of(low) <= band_of(high)


def test_neighbours_keep_their_order_up_to_where_bands_are_wide() -> None:
    bands = [band_of(priority) for priority in range(-20_000, 20_001)]
    assert bands == sorted(bands)


@given(st.integers(-(10**15), 10**15))
def test_bands_are_exact_near_zero_and_close_beyond(priority: int) -> None:
    band = band_of(priority)
    assert abs(band - priority) <= abs(priority) / 10
    if abs(priority) <= 128:
        assert band == priority
    assert band_of(band) == band
    assert band_of(-priority) == -band
    assert int(float(band)) == band


def test_many_distinct_priorities_share_few_bands() -> None:
    assert len({band_of(priority) for priority in range(100_000)}) < 400


def test_seen_key_and_instance_are_stable() -> None:
    """Written down once: other values would forget what a running crawl has seen."""
    assert digest(b"fingerprint").hex() == "af1dca2e628fa7a0be264de4544b2156"
    assert instance_id(b"start", b"fingerprint", 0).hex() == "53b29c5a7992ab07"


def test_instances_differ_by_parent_fingerprint_and_occurrence() -> None:
    ids = {
        instance_id(b"start", b"f", 0),
        instance_id(b"start", b"f", 1),
        instance_id(b"start", b"g", 0),
        instance_id(b"star", b"tf", 0),
        instance_id(b"", b"startf", 0),
    }
    assert len(ids) == 5
    assert {len(one) for one in ids} == {8}


def test_page_is_the_url_or_where_it_may_be_asked_again_the_instance() -> None:
    instance = instance_id(b"start", b"f", 0)
    assert page_key(b"f", instance, dont_filter=False) == digest(b"f").hex()
    assert page_key(b"f", instance, dont_filter=True) == instance.hex()


def test_queue_is_the_host_unless_the_request_names_a_slot() -> None:
    assert queue_of("WWW.Example.COM.") == "www.example.com"
    assert queue_of("example.com", "My-Slot") == "My-Slot"
    assert queue_of("example.com", 7) == "7"
    assert queue_of(None) == ""
