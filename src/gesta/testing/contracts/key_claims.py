"""What every event store promises about callers' keys: claimed with the stream they lead to, by one
request only, for good.
"""

from gesta.ports.event_store import Appended, Claim, Claimed, LeadsElsewhere, Stale
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import fresh_append, fresh_claim
from gesta.testing.contracts.suite import Contract


class EventClaimsContract(Contract):
    needs = frozenset({"events"})

    async def test_a_key_leads_to_the_request_that_claimed_it_first(self, harness: Harness) -> None:
        first = fresh_claim(content=b"first")
        second = fresh_append(claim=fresh_claim(first.name, content=b"second"))
        assert await harness.events.append([fresh_append(claim=first)]) == [Appended(1)]
        assert await harness.events.append([second]) == [Claimed(first.request_id, b"first")]
        assert await harness.events.read([(second.stream, 0)]) == []

    async def test_of_two_claims_to_a_key_in_one_batch_the_first_is_accepted(
        self, harness: Harness
    ) -> None:
        first = fresh_claim()
        second = fresh_append(claim=fresh_claim(first.name))
        verdicts = await harness.events.append(
            [fresh_append(claim=first), second, fresh_append(claim=fresh_claim())]
        )
        assert verdicts == [Appended(1), Claimed(first.request_id, first.content), Appended(1)]
        assert await harness.events.read([(second.stream, 0)]) == []

    async def test_of_concurrent_claims_to_a_key_one_is_accepted(self, harness: Harness) -> None:
        name = fresh_claim().name
        appends = [fresh_append(claim=fresh_claim(name)) for _ in range(8)]
        answers = await race(*(harness.events.append([append]) for append in appends))
        verdicts = [verdict for (verdict,) in answers]
        winner = appends[verdicts.index(Appended(1))]
        assert winner.claim is not None
        assert verdicts.count(Claimed(winner.claim.request_id, winner.claim.content)) == 7
        found = await harness.events.read([(append.stream, 0) for append in appends])
        assert [event.stream for event in found] == [winner.stream]

    async def test_an_append_repeated_with_its_own_claim_is_recognised(
        self, harness: Harness
    ) -> None:
        append = fresh_append(claim=fresh_claim())
        await harness.events.append([append])
        assert await harness.events.append([append]) == [Appended(1)]  # S1-16
        assert len(await harness.events.read([(append.stream, 0)])) == 1

    async def test_a_refused_append_claims_nothing(self, harness: Harness) -> None:
        claim = fresh_claim()
        assert await harness.events.append([fresh_append(expected=7, claim=claim)]) == [Stale(0)]
        assert await harness.events.append([fresh_append(claim=fresh_claim(claim.name))]) == [
            Appended(1)
        ]

    async def test_a_batch_of_claims_may_be_large(self, harness: Harness) -> None:
        claims = [fresh_claim() for _ in range(300)]
        assert (
            await harness.events.append([fresh_append(claim=claim) for claim in claims])
            == [Appended(1)] * 300
        )
        again = [fresh_append(claim=fresh_claim(claim.name)) for claim in claims]
        assert await harness.events.append(again) == [
            Claimed(claim.request_id, claim.content) for claim in claims
        ]


class FirstClaimsContract(Contract):
    needs = frozenset({"events", "key_claims"})

    async def test_events_follow_a_first_claim_that_holds_and_no_other(
        self, harness: Harness
    ) -> None:
        held, free = fresh_claim(), fresh_claim()
        await harness.key_claims.put_claims([held])
        elsewhere = fresh_append(first=fresh_claim(held.name))
        appends = [
            fresh_append(),
            fresh_append(first=held),
            elsewhere,
            fresh_append(first=free, claim=fresh_claim()),
        ]
        assert await harness.events.append(appends) == [
            Appended(1),
            Appended(1),
            LeadsElsewhere(),
            Appended(1),
        ]
        assert await harness.events.read([(elsewhere.stream, 0)]) == []
        assert await harness.key_claims.put_claims([held, free]) == [True, True]

    async def test_of_two_first_claims_to_a_key_in_one_batch_the_first_is_accepted(
        self, harness: Harness
    ) -> None:
        # Whatever the ids of the requests are.
        for step in (1, -1):
            name = fresh_claim().name
            claims = [fresh_claim(name) for _ in range(3)][::step]
            assert await harness.events.append([fresh_append(first=one) for one in claims]) == [
                Appended(1),
                LeadsElsewhere(),
                LeadsElsewhere(),
            ]

    async def test_a_refused_append_keeps_its_first_claim(self, harness: Harness) -> None:
        claim, stale, doubled = fresh_claim(), fresh_claim(), fresh_claim()
        await harness.events.append([fresh_append(claim=claim)])
        assert await harness.events.append(
            [
                fresh_append(expected=7, first=stale),
                fresh_append(claim=fresh_claim(claim.name), first=doubled),
            ]
        ) == [Stale(0), Claimed(claim.request_id, claim.content)]
        assert await harness.key_claims.put_claims(
            [fresh_claim(stale.name), fresh_claim(doubled.name)]
        ) == [False, False]

    async def test_an_append_repeated_with_its_own_first_claim_is_recognised(
        self, harness: Harness
    ) -> None:
        append = fresh_append(first=fresh_claim(), claim=fresh_claim())
        assert await harness.events.append([append]) == [Appended(1)]
        assert await harness.events.append([append]) == [Appended(1)]
        assert len(await harness.events.read([(append.stream, 0)])) == 1

    async def test_of_concurrent_first_claims_to_a_key_one_is_accepted(
        self, harness: Harness
    ) -> None:
        name = fresh_claim().name
        appends = [fresh_append(first=fresh_claim(name)) for _ in range(8)]
        answers = await race(*(harness.events.append([append]) for append in appends))
        verdicts = [verdict for (verdict,) in answers]
        assert verdicts.count(LeadsElsewhere()) == 7
        found = await harness.events.read([(append.stream, 0) for append in appends])
        assert [event.stream for event in found] == [appends[verdicts.index(Appended(1))].stream]


class EventClaimsAfterRestartContract(Contract):
    needs = frozenset({"events", "durable"})

    async def test_a_claimed_key_stays_claimed(self, harness: Harness) -> None:
        claim = fresh_claim()
        await harness.events.append([fresh_append(claim=claim)])
        await reopen(harness)
        verdicts = await harness.events.append([fresh_append(claim=fresh_claim(claim.name))])
        assert verdicts == [Claimed(claim.request_id, claim.content)]


class KeyClaimsContract(Contract):
    needs = frozenset({"events", "key_claims"})

    async def test_claims_are_listed_by_name_page_by_page(self, harness: Harness) -> None:
        claims = [fresh_claim(content=b"%d" % n) for n in range(5)]
        await harness.events.append([fresh_append(claim=claim) for claim in reversed(claims)])
        found: list[Claim] = []
        while page := await harness.key_claims.claims(found[-1].name if found else b"", 2):
            found += page
        assert [one.name for one in found] == sorted(one.name for one in found)
        assert [one for one in found if one in claims] == sorted(
            claims, key=lambda claim: claim.name
        )

    async def test_a_claim_that_was_put_keeps_others_from_its_key(self, harness: Harness) -> None:
        claim = fresh_claim(content=b"first")
        assert await harness.key_claims.put_claims([claim]) == [True]
        verdicts = await harness.events.append([fresh_append(claim=fresh_claim(claim.name))])
        assert verdicts == [Claimed(claim.request_id, b"first")]

    async def test_a_repeated_claim_is_accepted_and_a_foreign_one_reported(
        self, harness: Harness
    ) -> None:
        claim, appended = fresh_claim(), fresh_claim()
        await harness.events.append([fresh_append(claim=appended)])
        await harness.key_claims.put_claims([claim])
        stolen = fresh_claim(appended.name, content=b"stolen")
        assert await harness.key_claims.put_claims([claim, stolen, appended, fresh_claim()]) == [
            True,
            False,
            True,
            True,
        ]
        assert await harness.events.append([fresh_append(claim=fresh_claim(appended.name))]) == [
            Claimed(appended.request_id, appended.content)
        ]


class KeyClaimsAfterRestartContract(Contract):
    needs = frozenset({"key_claims", "durable"})

    async def test_a_claim_that_was_put_stays_claimed(self, harness: Harness) -> None:
        claim = fresh_claim()
        await harness.key_claims.put_claims([claim])
        await reopen(harness)
        assert await harness.key_claims.put_claims([fresh_claim(claim.name)]) == [False]
