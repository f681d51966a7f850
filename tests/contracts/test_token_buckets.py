from gesta.testing.contracts.token_buckets import TokenBucketsContract


class TestBuckets(TokenBucketsContract): ...
