"""A vault in another database. No commit covers both.

Retention destroys secrets first, then removes their requests. A crash in between leaves requests
that the next walk removes, and no secret without a request. A request that stays because some
consumer of the log has not read it loses its secret as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gesta.domain.state import State
from gesta.ports.stores import Stores
from gesta.ports.transactions import NO_SECRETS, Entry, Projection, Recording, Transactions
from gesta.ports.vault import Vault


def with_separate_vault(stores: Stores, other: Stores) -> Stores:
    """`stores` with the vault of `other`, beside which the key file is."""
    return replace(
        stores,
        vault=other.vault,
        transactions=SeparateVaultTransactions(stores.transactions, other.vault),
        folder=other.folder,
        close=stores.close_after(other.close),
    )


class SeparateVaultTransactions:
    def __init__(self, transactions: Transactions, vault: Vault) -> None:
        self._transactions, self._vault = transactions, vault
        self.append, self.project = transactions.append, transactions.project

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        names = [(state.tenant, secrets[stream]) for stream, state in ended if stream in secrets]
        refs = [
            (newest.tenant, newest.name, version)
            for newest in (await self._vault.newest(names) if names else {}).values()
            if newest.box
            for version in range(1, newest.version + 1)
        ]
        if refs:
            await self._vault.delete(refs)
        return await self._transactions.remove(ended)

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        return await self._transactions.record(entries, projection)
