"""The model of many gateways on one PostgreSQL (bench/replicas.py)."""

import statistics
from dataclasses import replace

import pytest

from bench.replicas import (
    MOST_UNITS,
    UNITS,
    Costs,
    Plan,
    Server,
    Simulation,
    fitted,
    group_size,
    levels,
    load,
    most,
    wakes,
)

COSTS = Costs(
    group=200e-6,
    unit=40e-6,
    say=70e-6,
    say_each=3e-6,
    wake=18e-6,
    pass_on=7e-6,
    hear=10e-6,
    turn=766e-6,
    sync=500e-6,
    wal_group=300.0,
    wal_unit=850.0,
)
BUS = Plan(followers=1, bus=True)


def test_costs_that_lie_on_a_line_are_found_again() -> None:
    assert fitted([(1, 240.0), (8, 520.0), (128, 5320.0)]) == pytest.approx((200.0, 40.0))


def test_a_large_group_counts_no_more_than_a_small_one() -> None:
    group, unit = fitted([(1, 240.0), (8, 520.0), (128, 10640.0)])
    assert group + unit == pytest.approx(240.0, rel=0.2)


def test_units_that_come_seldom_are_groups_of_their_own() -> None:
    assert group_size(1.0, COSTS) == pytest.approx(1.0, abs=0.001)


def test_a_group_has_no_more_units_than_the_writer_takes() -> None:
    assert group_size(1e9, COSTS) == MOST_UNITS


@pytest.mark.parametrize("rate", [50.0, 400.0, 900.0, 3000.0])
def test_groups_are_as_large_as_in_the_simulation(rate: float) -> None:
    done = Simulation(1, COSTS, 8, rate=rate, listeners=0).run(5)
    assert group_size(rate, COSTS) == pytest.approx(done.units / done.groups, rel=0.15)


@pytest.mark.parametrize("replicas", [2, 20])
def test_the_server_is_as_busy_as_in_the_simulation(replicas: int) -> None:
    done = Simulation(replicas, COSTS, 32, rate=10 * UNITS).run(3)
    found = load(replicas, 10, COSTS, Server(), Plan())
    assert found.rows_cores + found.fanout_cores == pytest.approx(done.busy / 3, rel=0.15)


def test_commits_that_wait_for_the_disk_share_its_next_sync() -> None:
    alone, together = (Simulation(writers, COSTS, 64, listeners=0).run(1) for writers in (1, 16))
    assert alone.syncs >= alone.groups
    assert together.syncs < together.groups / 4


def test_notifications_are_passed_on_together_where_cores_are_rare() -> None:
    rare = Simulation(20, COSTS, 1, rate=200.0).run(1)
    enough = Simulation(20, COSTS, 64, rate=200.0).run(1)
    assert statistics.median(rare.heard) > statistics.median(enough.heard)
    assert rare.busy <= 1.01


def test_notifications_to_all_grow_with_the_square_of_the_replicas() -> None:
    few, many = (load(replicas, 1, COSTS, Server(), Plan()) for replicas in (100, 1000))
    assert many.rows_cores == pytest.approx(10 * few.rows_cores)
    assert 50 < many.fanout_cores / few.fanout_cores < 100


def test_notifications_behind_one_sync_wake_a_listener_once() -> None:
    assert wakes(1.0, 500e-6) == pytest.approx(1.0, rel=0.001)
    assert wakes(1e6, 500e-6) == pytest.approx(1 / 500e-6)


def test_only_followers_are_woken_where_the_server_knows_them() -> None:
    few, many = (load(replicas, 1, COSTS, Server(), Plan(followers=1)) for replicas in (100, 1000))
    assert many.fanout_cores == pytest.approx(10 * few.fanout_cores)


def test_a_bus_takes_the_notifications_from_the_server() -> None:
    found = load(1000, 1, COSTS, Server(), BUS)
    assert found.fanout_cores == 0
    assert found.xids == found.groups


def test_databases_that_share_the_principals_share_the_rows() -> None:
    # Each replica writes a smaller group to each of them, so four of them have more work than one.
    one, four = (load(100, 10, COSTS, Server(), replace(BUS, shards=shards)) for shards in (1, 4))
    assert one.rows_cores / 4 <= four.rows_cores < one.rows_cores / 3


def test_groups_that_grow_for_longer_are_fewer() -> None:
    lingers = 0.02
    done = Simulation(1, COSTS, 8, rate=400.0, listeners=0, linger=lingers).run(5)
    assert group_size(400.0, COSTS, Plan(linger=lingers)) == pytest.approx(done.units / done.groups, rel=0.15)
    today, later = (load(100, 5, COSTS, Server(), plan) for plan in (Plan(), Plan(linger=lingers)))
    assert later.groups < today.groups / 2
    assert later.fanout_cores < today.fanout_cores / 2


def test_replicas_without_turns_wake_each_other() -> None:
    few, many = (load(replicas, 0, COSTS, Server(), Plan()) for replicas in (100, 1000))
    assert 0 < few.fanout_cores < many.fanout_cores / 50


@pytest.mark.parametrize(
    ("replicas", "plan", "limit"),
    [
        (1000, Plan(), "CPU of the server, by notifications"),
        (1000, BUS, "CPU of the server, by rows"),
        (3, BUS, "CPU of a gateway, by turns"),
    ],
)
def test_the_first_limit_is_named(replicas: int, plan: Plan, limit: str) -> None:
    turns, found = most(replicas, COSTS, Server(), plan)
    assert found == limit
    assert load(replicas, turns, COSTS, Server(), plan).full[0] == pytest.approx(1.0)


def test_a_slow_disk_is_the_first_limit() -> None:
    assert most(1000, COSTS, Server(wal=1e6), BUS)[1] == "write-ahead log, by rows"


def test_an_index_of_more_rows_has_more_levels() -> None:
    assert [levels(rows, 90, 90) for rows in (90, 91, 8100, 8101, 10**9)] == [1, 2, 2, 3, 5]
