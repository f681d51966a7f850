"""A program with a flow that uses templates."""

from gesta import Attempt, Done, Engine, Flow, Outcome, Payload
from gesta.tenants.templates.templates import TEMPLATE, Template

APP = "tests.cli.post:engine"


class Letter(Payload, frozen=True):
    template: str


async def _send(letter: Letter, attempt: Attempt) -> Outcome:
    rendered = await attempt.templates.render(letter.template, {})
    return Done(rendered.parts["text"])


engine = Engine(
    "sqlite:///gesta.db", flows=[Flow("post.letter", Letter, _send, config={TEMPLATE: Template})]
)
