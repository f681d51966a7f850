"""A program with flows of its own, as a user of the command line has one.

Its flow comes to whatever the payload says.
"""

from gesta import Attempt, Done, Engine, Outcome, Payload, Personal, Rejected, Retry, Unknown, flow

APP = "tests.cli.shop:engine"


class Note(Payload, frozen=True):
    comes_to: str = "done"
    count: int = 1
    email: Personal[str] = ""


@flow("shop.note", on_unknown="manual", attempts=3)
async def note(payload: Note, attempt: Attempt) -> Outcome:
    match payload.comes_to:
        case "done":
            return Done(f"note-{payload.count}")
        case "rejected":
            return Rejected("bad_address", "nobody lives there")
        case "retry":
            return Retry("busy", "come back later", after_seconds=3600)
        case _:
            return Unknown("no_answer", "the line went dead")


engine = Engine("sqlite:///gesta.db", flows=[note])
