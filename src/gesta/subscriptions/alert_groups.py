"""What an alert is about: occurrences of one reason, and the text for them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gesta.api_types.config_commands import put_command
from gesta.flows.flow import Notice

#: Kinds are few and reasons a closed set, so only a bug reaches this.
GROUPS_MAX = 1_000
#: Occurrences of a group that are looked at again before the alert is sent. More are only counted:
#: so many of one reason are not all over at once.
KEPT_MAX = 200

#: A longer reason is a free text and not named in the title.
TITLE_REASON_MAX = 60

#: Kind → what happened, and what to do.
SENTENCES: Mapping[str, tuple[str, str]] = {
    "dead_letter": (
        "{requests} of {flow} failed: {reason}",
        "gesta dlq show {example}",
    ),
    "undecided": (
        "{requests} of {flow} with an unknown outcome that a person has to resolve: {reason}",
        "gesta resolve {example}",
    ),
    "credential_refused": (
        "a provider refuses {count} of {reason}; requests that use them are held",
        "store it again: gesta {put}",
    ),
    "config_missing": (
        "{count} of {reason} are missing; requests that use them are held",
        "store it: gesta {put}",
    ),
    "queue_depth": (
        "too many requests of {reason} are waiting",
        "gesta doctor; {example}",
    ),
    "queue_age": (
        "a request of {reason} has been waiting for too long, in seconds",
        "gesta doctor; {example}",
    ),
    "queue_dead_letters": (
        "the {reason} queue has dead letters",
        "gesta dlq inbound; {example}",
    ),
    "quarantined": (
        "{count} events or jobs could not be processed ({reason}) and are quarantined",
        "gesta list --quarantined; {example}",
    ),
    "crashed": (
        "the component {reason} crashed {count} times and was restarted",
        "see the log of {example}",
    ),
}


#: Kind, flow, reason.
Name = tuple[str, str, str]


class Occurrence(msgspec.Struct, frozen=True):
    """One thing that needs a person."""

    kind: str
    flow: str
    #: From a closed set; `stored` is the exact one.
    reason: str
    tenant: str
    example: str
    stored: str = ""
    #: Of its event in the log; blank for what happened in this process.
    stream: str = ""
    version: int = 0
    position: int = 0
    at_ms: int = 0

    @property
    def name(self) -> Name:
        return self.kind, self.flow, self.reason


NONE = Occurrence("", "", "", "", "")


class Group:
    """Occurrences of one reason, each request or credential once."""

    def __init__(self) -> None:
        #: Tenant and example → its newest occurrence: the newest ones, oldest first.
        self._kept: dict[tuple[str, str], Occurrence] = {}
        #: The others, which are only counted: how many, the first and the newest.
        self._more, self._first_of_more, self._newest_of_more = 0, NONE, NONE

    @property
    def kept(self) -> list[Occurrence]:
        return list(self._kept.values())

    @property
    def count(self) -> int:
        return len(self._kept) + self._more

    @property
    def position(self) -> int:
        """The position of the first one in the log."""
        return (
            self._first_of_more.position if self._more else min(one.position for one in self.kept)
        )

    def add(self, one: Occurrence) -> None:
        if not one.stream:
            self._count(one)
            return
        self._kept.pop((one.tenant, one.example), None)
        if len(self._kept) >= KEPT_MAX:
            self._count(self._kept.pop(next(iter(self._kept))))
        self._kept[one.tenant, one.example] = one

    def _count(self, one: Occurrence) -> None:
        self._first_of_more = self._first_of_more if self._more else one
        self._more, self._newest_of_more = self._more + 1, one

    def keep(self, wanted: list[Occurrence]) -> None:
        """Forget the others of those that are kept."""
        self._kept = {(one.tenant, one.example): one for one in wanted}

    def forget_before(self, at_ms: int) -> None:
        self.keep([one for one in self.kept if one.at_ms >= at_ms])
        if self._newest_of_more.at_ms < at_ms:
            self._more = 0
        elif self._first_of_more.at_ms < at_ms:
            # How many of them are as old is not known: they stay counted.
            self._first_of_more = self._newest_of_more

    def notice(self, key: str) -> Notice:
        one = next(iter(self._kept.values()), self._newest_of_more)
        fields = {name: getattr(one, name) for name in ("kind", "flow", "reason", "tenant")}
        data = {**fields, "example": one.example, "count": self.count}
        so, advice = SENTENCES[one.kind]
        named = one.stored if self._has_one_reason(one.stored) else one.reason
        requests = "1 request" if self.count == 1 else f"{self.count} requests"
        title = so.format(**{**data, "reason": named, "requests": requests})
        kind, _, code = one.example.partition("/")
        remedy = advice.format(**data, put=put_command(kind, code))
        whose = f" Tenant {one.tenant}." if one.tenant else ""
        option = f" --tenant {one.tenant}" if one.tenant not in ("", "default") else ""
        exact = f" ({one.stored})" if one.stored not in ("", named) else ""
        text = f"gesta: {title}.{whose} For instance {one.example}{exact}: {remedy}{option}"
        return Notice(key, title, text, data)

    def _has_one_reason(self, stored: str) -> bool:
        """Whether all occurrences have this stored reason, and it is fit for a title."""
        is_short = 0 < len(stored) <= TITLE_REASON_MAX and stored.isprintable()
        return is_short and not self._more and all(one.stored == stored for one in self.kept)


#: Groups that wait to be sent.
Groups = dict[Name, Group]


def add(groups: Groups, one: Occurrence) -> None:
    known = groups.get(one.name)
    if known is None:
        if len(groups) >= GROUPS_MAX:
            return
        known = groups[one.name] = Group()
    known.add(one)
