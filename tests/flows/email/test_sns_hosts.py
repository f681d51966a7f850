"""Which hosts certificates may come from: the URL decides who signs, so it must be Amazon's."""

from __future__ import annotations

import pytest

from gesta.flows.email.sns import is_amazons


@pytest.mark.parametrize(
    ("url", "is_theirs"),
    [
        ("https://sns.eu-central-1.amazonaws.com/x.pem", True),
        ("https://sns.cn-north-1.amazonaws.com.cn/x.pem", True),
        ("https://sns.eu-central-1.amazonaws.com:443/x.pem", True),
        ("https://SNS.eu-central-1.amazonaws.com/x.pem", True),
        ("https://sns.eu-central-1.amazonaws.com:8443/x.pem", False),
        ("http://sns.eu-central-1.amazonaws.com/x.pem", False),
        ("https://sns.eu-central-1.amazonaws.com@evil.example/x.pem", False),
        ("https://evil.example@sns.eu-central-1.amazonaws.com/x.pem", False),
        ("https://evil.example/sns.eu-central-1.amazonaws.com/x.pem", False),
        ("https://evil.example\\.sns.eu-central-1.amazonaws.com/x.pem", False),
        ("https://sns.eu-central-1.amazonaws.com.evil.example/x.pem", False),
        ("https://sns.a.b.amazonaws.com/x.pem", False),
        ("https://xsns.eu-central-1.amazonaws.com/x.pem", False),
        ("https://s3.amazonaws.com/x.pem", False),
        # A bucket of S3 that another customer called `sns`: Amazon's host, another's file.
        ("https://sns.s3.amazonaws.com/x.pem", False),
        ("https://sns.s3-eu-west-1.amazonaws.com/x.pem", False),
        ("https://sns.us-gov-west-1.amazonaws.com/x.pem", True),
        ("https://sns.ap-southeast-2.amazonaws.com/x.pem", True),
        ("https://sns.eu-central-1.amazonaws.com\n/x.pem", False),
        ("https://sns.\u0435u-central-1.amazonaws.com/x.pem", False),
        ("https://[::1]/x.pem", False),
        ("https://[/x.pem", False),
        ("http://127.0.0.1:9/x.pem", True),
        ("http://127.0.0.1:99/x.pem", False),
        ("http://127.0.0.1:9.evil.example/x.pem", False),
    ],
)
def test_only_hosts_of_sns_and_the_one_of_a_trial_are_asked(url, is_theirs):
    assert is_amazons(url, "http://127.0.0.1:9") is is_theirs
