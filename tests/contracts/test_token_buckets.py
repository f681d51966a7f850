from gesta.testing.contracts.token_buckets import BucketsContract


class TestBuckets(BucketsContract): ...
