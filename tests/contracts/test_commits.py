from gesta.contracts.commits import CommitsAfterRestartContract, ProjectContract, RecordContract


class TestProject(ProjectContract): ...


class TestRecord(RecordContract): ...


class TestCommitsAfterRestart(CommitsAfterRestartContract): ...
