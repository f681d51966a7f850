from gesta.contracts.buckets import BucketsContract


class TestBuckets(BucketsContract): ...
