"""The picture of the cluster: only the newest counts, wherever it comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_operator.cluster import Listing
from nightjar_operator.kinds import CONFIG_MAP, NIGHTJAR_SERVICE, POD, SERVICE_LABEL
from nightjar_operator.reports import Silence
from nightjar_operator.store import Store

KEY = ("default", "chat")


def labelled(version, name="chat-settings", uid="a", service="chat"):
    metadata = {"namespace": "default", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata | {"labels": {SERVICE_LABEL: service}}, "data": {"version": version}}


def service(version):
    metadata = {"namespace": "default", "name": "chat", "uid": "s", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {}}


def pod(version, uid="p"):
    return labelled(version, name=f"chat-{uid}", uid=uid) | {"spec": {}, "status": {}}


@pytest.fixture
def store():
    store = Store()
    store.observe(NIGHTJAR_SERVICE, service(1))
    return store


def names(store):
    return {name for _, name in store.get(KEY).children}


def test_a_child_belongs_to_the_service_its_label_names(store):
    assert store.observe(CONFIG_MAP, labelled(2)) == KEY
    assert names(store) == {"chat-settings"}


def test_an_older_version_changes_nothing(store):
    store.observe(CONFIG_MAP, labelled(5))
    assert store.observe(CONFIG_MAP, labelled(5)) is None
    assert store.observe(CONFIG_MAP, labelled(4)) is None
    assert store.observe(CONFIG_MAP, labelled(6)) == KEY


def test_what_is_deleted_stays_so_for_a_listing_that_was_under_way(store):
    store.observe(CONFIG_MAP, labelled(5))
    assert store.forget(CONFIG_MAP, labelled(6)) == KEY
    store.replace(CONFIG_MAP, Listing([labelled(5)], "5"), None)
    assert names(store) == set()


def test_what_only_lost_its_label_may_come_back(store):
    store.observe(CONFIG_MAP, labelled(5))
    store.forget(CONFIG_MAP, labelled(6))
    assert store.observe(CONFIG_MAP, labelled(7)) == KEY


def test_the_deletion_of_an_earlier_object_of_the_name_is_no_news(store):
    store.observe(CONFIG_MAP, labelled(7, uid="b"))
    assert store.forget(CONFIG_MAP, labelled(6, uid="a")) is None
    assert names(store) == {"chat-settings"}


def test_a_listing_drops_what_it_lacks_unless_that_is_newer(store):
    store.observe(CONFIG_MAP, labelled(5, "old", "a"))
    store.observe(CONFIG_MAP, labelled(20, "new", "b"))
    store.replace(CONFIG_MAP, Listing([], "10"), None)
    assert names(store) == {"new"}


def test_a_listing_of_one_namespace_says_nothing_about_others(store):
    store.observe(CONFIG_MAP, labelled(5))
    store.replace(CONFIG_MAP, Listing([], "10"), "elsewhere")
    assert names(store) == {"chat-settings"}


def test_a_child_whose_label_names_another_service_moves(store):
    store.observe(CONFIG_MAP, labelled(5))
    assert store.observe(CONFIG_MAP, labelled(6, service="other")) == ("default", "other")
    assert names(store) == set()


def test_reports_go_with_their_pod(store):
    store.observe(POD, pod(2))
    assert store.report(KEY, "p", Silence("away"))
    assert not store.report(KEY, "p", Silence("away"))
    store.forget(POD, pod(3))
    assert not store.report(KEY, "p", Silence("away"))
    assert store.get(KEY).reports == {}


def test_a_service_is_forgotten_with_its_last_object(store):
    store.observe(CONFIG_MAP, labelled(2))
    store.forget(NIGHTJAR_SERVICE, service(3))
    assert store.services() == []
    assert names(store) == {"chat-settings"}
    store.forget(CONFIG_MAP, labelled(4))
    assert store._seen == {}


@given(st.permutations(range(2, 9)))
def test_whatever_the_order_of_events_the_newest_wins(order):
    store = Store()
    for version in order:
        store.observe(NIGHTJAR_SERVICE, service(version))
    assert store.get(KEY).service["metadata"]["resourceVersion"] == "8"
