"""What every store promises (`operations.ports.Store`, `Keys`), written once.

A subclass gives the fixtures `store`, `keys` and `clock`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gateway.operations.ports import Keys, Store
from gateway.sandboxes.model import Address, LifeEvent, Platform, SandboxRecord, Secret, State, Status
from tests.fakes.clock import START, FakeClock


def record(
    sandbox_id: str = "s1", *, at: datetime = START, state: State = State.RUNNING, **changes: Any
) -> SandboxRecord:
    whole = SandboxRecord(
        sandbox_id=sandbox_id,
        status=Status(state, "WHY", "because", at),
        created_at=at,
        expires_at=None,
        image="img",
        entrypoint=("tail", "-f"),
        metadata={},
        extensions={},
        platform=None,
        token_salt="salt",
        address=None,
        managed_volumes=(),
    )
    return replace(whole, **changes)


def event(sandbox_id: str = "s1", reason: str = "WHY", at: datetime = START) -> LifeEvent:
    return LifeEvent(sandbox_id, at, reason, "because")


async def kept(store: Store, one: SandboxRecord) -> SandboxRecord:
    assert await store.insert(one, event(one.sandbox_id)) is None
    return one


class StoreContract:
    async def test_a_record_comes_back_whole(self, store: Store) -> None:
        """Every field survives, with microseconds and odd characters."""
        moment = START + timedelta(microseconds=1)
        whole = record(
            at=moment,
            expires_at=moment + timedelta(days=36500, microseconds=7),
            metadata={"a": "1"},
            extensions={"opensandbox.extensions.x": "é\n"},
            platform=Platform("linux", "amd64"),
            address=Address("10.0.0.2", 44772, "127.0.0.1", 40001),
            managed_volumes=("v",),
            exit_code=3,
            step="creating",
            worker="w",
            owner="k",
            spec={"envNames": ["A"], "deep": {"x": [1, None]}},
        )
        await kept(store, whole)
        assert await store.get("s1") == whole
        assert await store.get("other") is None

    async def test_update_compares_and_sets(self, store: Store) -> None:
        """Of two updates of the same version one wins, and the loser changes nothing."""
        first = await kept(store, record())
        won, lost = await asyncio.gather(
            store.update(replace(first, metadata={"by": "one"}), event(reason="ONE")),
            store.update(replace(first, metadata={"by": "two"}), event(reason="TWO")),
        )
        assert (won is None) != (lost is None)
        winner = won or lost
        assert winner is not None
        assert winner.version == 1
        assert await store.get("s1") == winner
        assert len(await store.events("s1", 10)) == 2

    async def test_a_process_is_on_the_list_while_it_lives(self, store: Store) -> None:
        """Joining is joining once; the list holds who joined, and our own writes are nobody else's."""
        assert await store.enlisted() == frozenset()
        me = await store.enlist()
        assert await store.enlist() == me
        assert await store.enlisted() == {me}
        before = await store.foreign_writes()
        await kept(store, record())
        assert await store.foreign_writes() == before

    async def test_pages_are_newest_first_and_stable(self, store: Store) -> None:
        """Pages follow creation time, ties are broken the same way each time, tombstones are not shown."""
        for number in range(7):
            await kept(store, record(f"s{number}", at=START + timedelta(seconds=number // 2)))
        await store.update(record("s6", at=START + timedelta(seconds=3), deleted_at=START))
        first, total = await store.page(states=None, metadata=(), offset=0, limit=4)
        second, _ = await store.page(states=None, metadata=(), offset=4, limit=4)
        past, still = await store.page(states=None, metadata=(), offset=40, limit=4)
        assert [one.sandbox_id for one in (*first, *second)] == ["s5", "s4", "s3", "s2", "s1", "s0"]
        assert (total, past, still) == (6, [], 6)

    @pytest.mark.parametrize(
        ("states", "pairs", "found"),
        [
            (None, (), {"a", "b", "c"}),
            ((), (), set()),
            (("Running",), (), {"a", "b"}),
            (("Running", "Failed"), (), {"a", "b", "c"}),
            (None, (("team", "x"),), {"a", "c"}),
            (None, (("team", "x"), ("tier", "1")), {"a"}),
            (("Failed",), (("team", "x"),), {"c"}),
            (None, (("team", "X"),), set()),
            (None, (("team", ""),), set()),
            (None, (("empty", ""),), {"b"}),
        ],
    )
    async def test_filters_are_exact(
        self,
        store: Store,
        states: tuple[str, ...] | None,
        pairs: tuple[tuple[str, str], ...],
        found: set[str],
    ) -> None:
        """State and metadata filters narrow together; nothing widens."""
        await kept(store, record("a", metadata={"team": "x", "tier": "1"}))
        await kept(store, record("b", metadata={"empty": ""}))
        await kept(store, record("c", state=State.FAILED, metadata={"team": "x"}))
        records, total = await store.page(states=states, metadata=pairs, offset=0, limit=10)
        assert {one.sandbox_id for one in records} == found
        assert total == len(found)

    async def test_metadata_filter_follows_changes(self, store: Store) -> None:
        """A patched pair is found, the old one is not, and a deleted sandbox by neither."""
        first = await kept(store, record(metadata={"a": "1"}))
        second = await store.update(replace(first, metadata={"a": "2"}))
        assert second is not None
        assert (await store.page(states=None, metadata=(("a", "1"),), offset=0, limit=1))[1] == 0
        assert (await store.page(states=None, metadata=(("a", "2"),), offset=0, limit=1))[1] == 1
        await store.update(replace(second, deleted_at=START))
        assert (await store.page(states=None, metadata=(("a", "2"),), offset=0, limit=1))[1] == 0

    async def test_expiry_is_found_in_order(self, store: Store) -> None:
        """Due records come earliest first; manual, later and deleted ones do not come."""
        await kept(store, record("late", expires_at=START + timedelta(seconds=9)))
        await kept(store, record("soon", expires_at=START + timedelta(seconds=1)))
        await kept(store, record("next", expires_at=START + timedelta(seconds=2)))
        await kept(store, record("never"))
        await kept(store, record("gone", expires_at=START, deleted_at=START))
        due = await store.due(START + timedelta(seconds=2), 10)
        assert [one.sandbox_id for one in due] == ["soon", "next"]
        assert [one.sandbox_id for one in await store.due(START + timedelta(seconds=2), 1)] == ["soon"]
        assert await store.next_expiry() == START + timedelta(seconds=1)

    async def test_unfinished_includes_tombstones(self, store: Store) -> None:
        """What was under way is found after a restart, deletions too."""
        await kept(store, record("done"))
        await kept(store, record("making", step="creating"))
        await kept(store, record("removing", step="removing", deleted_at=START))
        assert {one.sandbox_id for one in await store.unfinished()} == {"making", "removing"}
        assert {one.sandbox_id for one in await store.all_live()} == {"done", "making"}

    async def test_an_idempotency_key_is_bound_once(self, store: Store) -> None:
        """The second create with a key gets the first record and writes nothing; another owner's key is another."""
        first = record("first", owner="k1")
        assert await store.insert(first, event("first"), idempotency_key="key") is None
        assert (
            await store.insert(record("second", owner="k1"), event("second"), idempotency_key="key") == first
        )
        assert await store.get("second") is None
        assert await store.insert(record("third", owner="k2"), event("third"), idempotency_key="key") is None

    async def test_of_parallel_creates_with_a_key_one_is_made(self, store: Store) -> None:
        """However many come at once, one is recorded and all others get it."""
        outcomes = await asyncio.gather(
            *(
                store.insert(record(f"s{number}", owner="k"), event(f"s{number}"), idempotency_key="key")
                for number in range(20)
            )
        )
        assert outcomes.count(None) == 1
        assert len({one.sandbox_id for one in outcomes if one is not None}) == 1

    async def test_a_failed_create_frees_its_key(self, store: Store) -> None:
        """A create that was undone may be repeated with its key."""
        first = record("first", owner="k", state=State.FAILED, deleted_at=START)
        await store.insert(first, event("first"), idempotency_key="key")
        again = record("again", owner="k")
        assert await store.insert(again, event("again"), idempotency_key="key") is None
        assert await store.insert(record("more", owner="k"), event("more"), idempotency_key="key") == again

    async def test_history_is_bounded_and_in_order(self, store: Store) -> None:
        """The newest events are kept, oldest first; those of unknown sandboxes are not."""
        await kept(store, record())
        for number in range(30):
            await store.add_event(event(reason=f"E{number}"))
        await store.add_event(event("nobody"))
        assert [one.reason for one in await store.events("s1", 3)] == ["E27", "E28", "E29"]
        assert len(await store.events("s1", 1000)) == 20
        assert await store.events("nobody", 10) == []

    async def test_purge_forgets_finished_tombstones(self, store: Store) -> None:
        """Old tombstones go with their history; unfinished, young and live ones stay."""
        await kept(store, record("old", deleted_at=START))
        await kept(store, record("unfinished", deleted_at=START, step="removing"))
        await kept(store, record("young", deleted_at=START + timedelta(days=2)))
        await kept(store, record("live"))
        assert await store.purge(START + timedelta(days=1)) == 1
        assert await store.get("old") is None
        assert await store.events("old", 10) == []
        assert all([await store.get(name) for name in ("unfinished", "young", "live")])

    async def test_an_installation_keeps_its_name(self, store: Store) -> None:
        """The instance id is made once."""
        assert await store.instance() == await store.instance()
        await store.ping()


class KeysContract:
    async def test_a_key_is_shown_once_and_works(self, keys: Keys) -> None:
        """A made key is found by its text and only by it."""
        made, text = await keys.create("ci")
        assert text.reveal().startswith(f"bxk_{made.key_id}_")
        assert len(text.reveal().rpartition(f"{made.key_id}_")[2]) == 43
        assert await keys.find(text.reveal()) == made
        assert await keys.find(text.reveal()[:-1] + "~") is None
        assert await keys.find(f"bxk_{made.key_id}_" + "a" * 43) is None
        assert await keys.find("") is None

    async def test_a_revoked_key_is_none(self, keys: Keys) -> None:
        """Revoking works once and leaves other keys in force."""
        (one, first), (_, second) = await keys.create("a"), await keys.create("b")
        assert await keys.revoke(one.key_id)
        assert not await keys.revoke(one.key_id)
        assert not await keys.revoke("nobody")
        assert await keys.find(first.reveal()) is None
        assert await keys.find(second.reveal()) is not None
        assert sorted(key.name for key in await keys.list()) == ["a", "b"]

    async def test_the_first_key_is_any_text(self, keys: Keys) -> None:
        """An operator's own text is a key; a new text replaces the old one."""
        first = await keys.ensure_first(Secret("chosen by hand"))
        assert (first.key_id, first.name) == ("first", "first")
        assert await keys.ensure_first(Secret("chosen by hand")) == first
        assert await keys.find("chosen by hand") == first
        await keys.ensure_first(Secret("another"))
        assert await keys.find("chosen by hand") is None
        assert await keys.find("another") is not None

    async def test_use_is_noted(self, keys: Keys, clock: FakeClock) -> None:
        """The time of the last use is kept."""
        made, _ = await keys.create("ci")
        clock.advance(5)
        await keys.touch(made.key_id)
        assert [key.last_used_at for key in await keys.list()] == [clock.now()]
