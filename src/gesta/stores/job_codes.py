"""What the adapters of the job store have in common beside their rows."""

#: Code and message of a job whose worker died during its last retry.
WORKER_LOST = (
    "WORKER_LOST",
    "The worker of this job stopped answering, and no retry is left",
)
#: How the token of a claim begins that costs no retry when its worker is lost.
ADOPTED = "adopted-"
#: A job that becomes InProgress without a claim, or was so before the hashes, is taken back then.
CONFISCATED_SECONDS = 1_800
