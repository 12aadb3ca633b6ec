"""The published client, pointed at the gateway: python story.py URL PRO_KEY FREE_KEY

The gateway's quotas per minute are the contract's: the caller starts this with enough of a minute left.
"""

import sys
import time
import urllib.request

from dub import Dub
from dub.models import errors


class KeepRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect to the caller."""

    def redirect_request(self, *_):
        return None


def click(url: str, key: str) -> int:
    request = urllib.request.Request(f"{url}/r/{key}", headers={"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"})
    try:
        urllib.request.build_opener(KeepRedirect).open(request)
    except urllib.error.HTTPError as answer:
        return answer.code
    raise AssertionError("a short link redirects")


def eventually(what: str, probe):
    """Asks until there is an answer, at the two calls a second that the plan has for analytics."""
    for _ in range(20):
        answer = probe()
        if answer:
            return answer
        time.sleep(0.6)
    raise AssertionError(f"no {what}")


def paying(url: str, key: str) -> None:
    with Dub(token=key, server_url=url) as dub:
        link = dub.links.create(request={"url": "https://example.com/pricing"})
        assert link.url == "https://example.com/pricing", link

        many = dub.links.create_many(request=[{"url": f"https://example.com/{i}"} for i in range(100)])
        assert [item.url for item in many] == [f"https://example.com/{i}" for i in range(100)], many

        assert click(url, link.key) == 302

        top = eventually(
            "click in top_links",
            lambda: dub.analytics.retrieve(request={"group_by": "top_links", "start": "24 hours ago"}),
        )
        assert [(item.id, item.clicks) for item in top] == [(link.id, 1)], top

        events = eventually("click in events", lambda: dub.events.list(request={}))
        assert [event.link.id for event in events] == [link.id], events

        listed = dub.links.list(request={"page_size": 10})
        assert len(listed.result) == 10, listed
        assert dub.links.count(request={}) == 101


def free(url: str, key: str) -> None:
    with Dub(token=key, server_url=url) as dub:
        for _ in range(60):
            dub.links.count(request={})
        try:
            dub.links.count(request={})
        except errors.RateLimitExceeded as refusal:
            assert refusal.status_code == 429, refusal
            assert refusal.data.error.code == "rate_limit_exceeded", refusal.data
            assert 1 <= int(refusal.headers["retry-after"]) <= 60, refusal.headers
        else:
            raise AssertionError("the 61st request was served")

        try:
            dub.analytics.retrieve(request={"group_by": "count"})
        except errors.Forbidden as refusal:
            assert refusal.status_code == 403, refusal
        else:
            raise AssertionError("analytics is not in the plan")


if __name__ == "__main__":
    gateway, pro_key, free_key = sys.argv[1:]
    free(gateway, free_key)
    paying(gateway, pro_key)
