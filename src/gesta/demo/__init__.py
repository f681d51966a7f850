"""`gesta demo`: the whole pipeline with every failure once, on one machine, counted at the
receiver.

performance.py handles folder, signals and exit code; stage.py sets up receiver, store and worker;
story.py is the script; screen.py prints it. worker.py is the process that gets killed.
"""


def run_demo(
    *,
    stay: bool = False,
    url: str | None = None,
    events_url: str | None = None,
    queue_url: str | None = None,
    views_url: str | None = None,
    json: bool = False,
) -> int:
    """Run the demo and return its exit code: 0 only if every request had exactly one effect.

    `stay` keeps it running until Ctrl-C. `url` names an empty store to use instead of a fresh
    SQLite file, and `events_url` is another name of it; `queue_url` and `views_url` name other
    databases for jobs and views (testing/scratch_store.py). `json` prints the result as one JSON
    document, and the story on stderr.
    """
    # Imported here, because the worker process imports this package and needs none of it.
    from gesta.demo.performance import perform
    from gesta.runtime.clock import run
    from gesta.testing.scratch_store import ChosenStore, chosen_url

    chosen = ChosenStore(chosen_url(url, events_url), queue_url, views_url)
    return run(perform(stay=stay, chosen=chosen, json=json))
