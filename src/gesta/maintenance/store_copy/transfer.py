"""Copies events, claims and secrets unchanged. Every step may be repeated."""

from gesta.errors import StoreError
from gesta.maintenance.store_copy.plan import PAGE, CopyPlan, ref_of
from gesta.ports.checkpoints import Move, dispatched_of
from gesta.ports.event_store import Append, Appended, NewEvent, Recorded
from gesta.projector.partitions import checkpoints_of, positions_of

#: The prefix of the checkpoint with the progress of a copy; the source's URL and the tenant follow.
CHECKPOINT = "copy/"
#: Jobs of slow endpoints that are copied at once: one may have a megabyte.
STORED_JOBS = 100


class Transfer:
    def __init__(self, plan: CopyPlan) -> None:
        self._source, self._target, self._plan = plan.source, plan.target, plan
        #: Of the source's log, kept beside the target's views until the copy is done.
        self.checkpoint = f"{CHECKPOINT}{plan.tenant or '*'}/{plan.source.url}"

    async def events(self) -> tuple[int, int]:
        """Copy the next page of the log; returns how many events it had, and the position up to
        which the log is copied.
        """
        checkpoints = self._target.stores.checkpoints
        before = await checkpoints.position(self.checkpoint)
        page = await self._source.stores.events.follow(before, PAGE)
        if not page:
            return 0, before
        chosen = [recorded for recorded in page if self._plan.has_event(recorded)]
        # One append for each event, so that all keep their order: a follower continues in the
        # target where it was in the source.
        verdicts = (
            await self._target.stores.events.append([_append(recorded) for recorded in chosen])
            if chosen
            else []
        )
        for recorded, verdict in zip(chosen, verdicts, strict=True):
            if not isinstance(verdict, Appended):
                raise self._differs(recorded.stream)
        await self.move(self.checkpoint, page[-1].position)
        return len(page), page[-1].position

    async def move(self, name: str, position: int) -> None:
        """Set a checkpoint of the target."""
        checkpoints = self._target.stores.checkpoints
        before = await checkpoints.position(name)
        if before != position and not await checkpoints.move([Move(name, before, position)]):
            raise self._worked_on()

    async def mark_dispatched(self, position: int) -> None:
        """Up to this position the target's projector puts no jobs, in any partition."""
        stores = self._target.stores
        for name in checkpoints_of(stores.partitions):
            # A mark in any case: without one, the target's checkpoints would look lost.
            await stores.checkpoints.begin(dispatched_of(name), position)
        stands = zip(
            checkpoints_of(stores.partitions),
            await positions_of(stores.checkpoints, stores.partitions),
            strict=True,
        )
        moves = [
            Move(dispatched_of(name), one.dispatched, position)
            for name, one in stands
            if one.dispatched < position
        ]
        if moves and not await stores.checkpoints.move(moves):
            raise self._worked_on()

    async def position_after(self, position: int) -> int:
        """The position in the target's log that corresponds to `position` in the source's."""
        events = self._target.stores.events
        while page := await self._source.stores.events.follow(position, PAGE):
            following = next(
                (recorded for recorded in page if self._plan.has_event(recorded)), None
            )
            if following is not None:
                found = await events.read([(following.stream, following.version - 1)])
                # Not copied yet, so no later event is either.
                return found[0].position - 1 if found else await events.end()
            position = page[-1].position
        return await events.end()

    async def claims(self, others: frozenset[str] = frozenset()) -> int:
        """Copy all claims but those of the requests of `others`; how many.

        The tenant of a request that retention removed is not known: its claim is copied, so that
        its key is not used again.
        """
        count, after = 0, b""
        while page := await self._source.stores.key_claims.claims(after, PAGE):
            after = page[-1].name
            chosen = [claim for claim in page if claim.request_id not in others]
            answers = await self._target.stores.key_claims.put_claims(chosen) if chosen else []
            for claim, is_there in zip(chosen, answers, strict=True):
                if not is_there:
                    raise StoreError(
                        f"in {self._target.url} the key of request {claim.request_id} leads to"
                        " another request; requests were submitted to both stores. Nothing was"
                        " sent; choose another target"
                    )
            count += len(chosen)
        return count

    async def secrets(self) -> int:
        """Copy all versions as they are, encrypted; returns how many.

        A version that was destroyed is destroyed in the target, too.
        """
        vault, count = self._target.stores.vault, 0
        after = ("", "", 0)
        while page := await self._source.stores.vault.listed(after, PAGE):
            after = ref_of(page[-1])
            chosen = [encrypted for encrypted in page if self._plan.has_secret(encrypted)]
            written = await vault.put(chosen) if chosen else []
            gone = [
                ref_of(one)
                for one, is_new in zip(chosen, written, strict=True)
                if not one.box and not is_new
            ]
            if gone:
                await vault.delete(gone)
            count += len(chosen)
        return count

    async def stored_jobs(self) -> int:
        """Copy the jobs of slow endpoints with their claims; how many. A worker of the source loses
        its claims there, so that they expire in the target.
        """
        giving, taking = self._source.stores.job_rows, self._target.stores.job_rows
        names, count, after = [] if giving is None else await giving.names(), 0, 0
        while giving is not None and (page := await giving.rows(after, STORED_JOBS)):
            if taking is None:
                raise StoreError(f"{self._target.url} cannot hold jobs of slow endpoints")
            after = page[-1][0]
            await taking.fill([row for _, row in page], names)
            count += len(page)
        return count

    def _worked_on(self) -> StoreError:
        return StoreError(f"another process uses {self._target.url}; stop it, then repeat the copy")

    def _differs(self, stream: str) -> StoreError:
        return StoreError(
            f"{self._target.url} has other events than {self._source.url} in the stream {stream}; "
            "both stores were written to. Nothing was sent from the copy; choose another target"
        )


def _append(recorded: Recorded) -> Append:
    event = NewEvent(recorded.id, recorded.type, recorded.data, recorded.meta)
    return Append(recorded.stream, recorded.version - 1, (event,))
