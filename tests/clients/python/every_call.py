"""Every call that the published client offers for the resources that the API has, with every argument:
python every_call.py URL KEY CLICKS ARGUMENTS

CLICKS is clicks.json: clicks that the caller has made on the link `ext_clicked`, and the answers about them. ARGUMENTS is
arguments.json: links that the caller has made, and what each argument of each call does.
"""

import asyncio
import inspect
import json
import sys

from dub import Dub
from dub.models import components, errors, operations

from arguments import Arguments, shown


class Calls:
    """A resource of the client that knows which of its calls were not made yet."""

    def __init__(self, resource, suffix: str, run):
        self._resource, self._suffix, self._run = resource, suffix, run
        self.unmade = {
            name.removesuffix(suffix)
            for name, member in vars(type(resource)).items()
            if inspect.isfunction(member) and inspect.iscoroutinefunction(member) == bool(suffix)
        }

    def __getattr__(self, name: str):
        call = getattr(self._resource, name + self._suffix)

        def made(**arguments):
            self.unmade.discard(name)
            return self._run(call(**arguments))

        return made


def refused(kind, code: str, call) -> None:
    try:
        call()
    except kind as refusal:
        assert refusal.data.error.code == code, refusal.data
    else:
        raise AssertionError(f"{code} was expected")


def assert_like(parsed: list, expected: list, what: str) -> None:
    """Each parsed value has the fields of the expected one."""
    shown_fields = [{name: shown(value).get(name) for name in row} for value, row in zip(parsed, expected)]
    assert len(parsed) == len(expected) and shown_fields == expected, (what, parsed)


def tags(tags: Calls, name: str) -> None:
    """Leaves a tag of that name for the links."""
    tag = tags.create(request={"name": name, "color": "blue"})
    assert isinstance(tag, components.LinkTagSchemaOutput), tag
    assert (tag.name, tag.color.value) == (name, "blue"), tag
    other = tags.create(request={"tag": f"{name}-2"})
    refused(errors.Conflict, "conflict", lambda: tags.create(request={"name": name.upper()}))
    refused(errors.UnprocessableEntity, "unprocessable_entity", lambda: tags.create(request={"name": ""}))

    updated = tags.update(id=other.id, request_body={"name": f"{name}-3", "color": "pink"})
    assert (updated.id, updated.name, updated.color.value) == (other.id, f"{name}-3", "pink"), updated
    assert tags.list(request={"search": name}) == [tag, updated]
    newest = {"search": name, "sort_by": "createdAt", "sort_order": "desc", "page": 1, "page_size": 1}
    assert tags.list(request=newest) == [updated]
    assert tags.list(request={"ids": [tag.id, "tag_nobody"]}) == [tag]

    assert tags.delete(id=other.id).id == other.id
    refused(errors.NotFound, "not_found", lambda: tags.update(id=other.id, request_body={"name": "x"}))
    refused(errors.NotFound, "not_found", lambda: tags.delete(id=other.id))


def folders(folders: Calls, name: str) -> None:
    folder = folders.create(request={"name": name, "description": "d"})
    assert isinstance(folder, components.FolderSchema), folder
    assert (folder.name, folder.description) == (name, "d"), folder
    assert (folder.type.value, folder.access_level.value) == ("default", "write"), folder
    refused(errors.Conflict, "conflict", lambda: folders.create(request={"name": name.upper()}))
    read_only = {"name": "x", "access_level": "read"}
    refused(errors.UnprocessableEntity, "unprocessable_entity", lambda: folders.create(request=read_only))

    changes = {"name": f"{name}-2", "description": None, "access_level": "write"}
    updated = folders.update(id=folder.id, request_body=changes)
    assert (updated.id, updated.name, updated.description) == (folder.id, f"{name}-2", None), updated
    assert folders.list(request={"search": name, "page": 1, "page_size": 1}) == [updated]

    assert folders.delete(id=folder.id).id == folder.id
    refused(errors.NotFound, "not_found", lambda: folders.update(id=folder.id, request_body={"name": "x"}))
    refused(errors.NotFound, "not_found", lambda: folders.delete(id=folder.id))


def domains(domains: Calls, host: str) -> None:
    page = domains.list(request={"archived": False, "search": host, "page": 1, "page_size": 2})
    assert isinstance(page, operations.ListDomainsResponse), page
    (domain,) = page.result
    assert (domain.slug, domain.primary, domain.verified, domain.archived) == (host, True, True, False), domain
    assert domain.registered_domain is None and page.next() is None, page
    # Domains are named on the command line.
    refused(errors.NotFound, "not_found", lambda: domains.update(slug=host, request_body={"archived": True}))
    refused(errors.NotFound, "not_found", lambda: domains.delete(slug=host))
    refused(errors.NotFound, "not_found", lambda: domains.register(request={"domain": "go.link"}))
    refused(errors.NotFound, "not_found", lambda: domains.check_status(request={"domains": "go.link"}))
    try:
        domains.create(request={"slug": "go.test"})
    except errors.SDKError as refusal:
        assert refusal.status_code == 405, refusal
    else:
        raise AssertionError("405 was expected")


def absent(dub: Dub, suffix: str, run) -> None:
    """What the service does not have is told so in the published form."""
    lead = {"click_id": "c", "event_name": "e", "customer_external_id": "x"}
    sale = {"customer_external_id": "x", "amount": 1}
    calls = [(dub.track, "lead", lead), (dub.track, "sale", sale)]
    calls += [(resource, "list", {}) for resource in (dub.customers, dub.partners, dub.commissions, dub.payouts)]
    for resource, name, request in calls:
        call = getattr(resource, name + suffix)
        refused(errors.NotFound, "not_found", lambda: run(call(request=request)))


def links(links: Calls, name: str) -> None:
    before, with_archived = links.count(request={}), links.count(request={"show_archived": True})
    # A slash in an external id is not escaped by this client.
    external = f"{name}/1"
    link = links.create(
        request={
            "url": "https://example.com/pricing?x=1", "key": name, "external_id": external, "tenant_id": name,
            "title": "Prices", "comments": "c", "tag_names": [name], "geo": {"DE": "https://example.com/de"},
            "expires_at": "2030-01-01T00:00:00Z", "utm_campaign": "spring", "ios": "https://example.com/ios",
        }
    )
    assert isinstance(link, components.LinkSchema), link
    assert (link.key, link.external_id, link.tenant_id, link.title) == (name, external, name, "Prices"), link
    assert (link.url, link.utm_campaign) == ("https://example.com/pricing?x=1&utm_campaign=spring", "spring"), link
    assert (link.expires_at, link.clicks, link.archived) == ("2030-01-01T00:00:00.000Z", 0, False), link
    assert [tag.name for tag in link.tags] == [name] and link.geo["DE"] == "https://example.com/de", link
    assert link.short_link == f"http://{link.domain}/r/{name}", link

    for request in [{"link_id": link.id}, {"external_id": f"ext_{external}"}, {"domain": link.domain, "key": name}]:
        assert links.get(request=request) == link, request
    refused(errors.NotFound, "not_found", lambda: links.get(request={"link_id": "link_nobody"}))
    refused(errors.Conflict, "conflict", lambda: links.create(request={"url": "https://example.com", "key": name}))
    refused(errors.UnprocessableEntity, "unprocessable_entity", lambda: links.create(request={"url": "nonsense"}))
    unknown_tag = {"url": "https://example.com", "tag_names": ["nobody"]}
    refused(errors.UnprocessableEntity, "unprocessable_entity", lambda: links.create(request=unknown_tag))
    unknown_folder = {"url": "https://example.com", "folder_id": "fold_nobody"}
    refused(errors.UnprocessableEntity, "unprocessable_entity", lambda: links.create(request=unknown_folder))

    updated = links.update(link_id=f"ext_{external}", request_body={"url": "https://example.com/new", "archived": True})
    assert (updated.id, updated.url, updated.archived) == (link.id, "https://example.com/new", True), updated
    assert links.update(link_id=link.id, request_body={"title": None}).title is None

    same = links.upsert(request={"url": "https://example.com/new", "title": "New"})
    assert (same.id, same.title) == (link.id, "New"), same
    other = links.upsert(request={"url": f"https://example.com/{name}/upserted"})
    assert other.id != link.id and other.url == f"https://example.com/{name}/upserted", other

    urls = [f"https://example.com/{name}/{n}" for n in range(5)]
    many = links.create_many(
        request=[{"url": url, "external_id": f"{name}-{n}"} for n, url in enumerate(urls)]
        + [{"url": "https://example.com", "key": name}]
    )
    made, failed = many[:5], many[5]
    assert all(isinstance(item, components.LinkSchema) for item in made), many
    assert [item.url for item in made] == urls, many
    assert isinstance(failed, components.LinkErrorSchema) and failed.code == "conflict", failed

    request = {"search": f"{name}/", "page_size": 2, "show_archived": False}
    page, listed = links.list(request=request), []
    while page is not None:
        assert isinstance(page, operations.GetLinksResponse) and len(page.result) <= 2, page
        listed += page.result
        page = page.next()
    assert [item.id for item in listed] == [item.id for item in reversed([other, *made])], listed
    assert [item.id for item in links.list(request={"tag_names": [name], "show_archived": True}).result] == [link.id]
    assert links.count(request={}) == before + 6, "archived links are not counted"
    assert links.count(request={"tenant_id": name, "show_archived": True}) == 1

    by_id = links.update_many(request={"link_ids": [made[1].id, made[0].id], "data": {"comments": "both"}})
    assert [(item.id, item.comments) for item in by_id] == [(made[1].id, "both"), (made[0].id, "both")], by_id
    by_external = links.update_many(request={"external_ids": [f"{name}-2", "nobody"], "data": {"archived": True}})
    assert [(item.id, item.archived) for item in by_external] == [(made[2].id, True)], by_external

    assert links.delete(link_id=f"ext_{name}-0").id == made[0].id
    rest = [item.id for item in [link, other, *made[1:]]]
    assert links.delete_many(request={"link_ids": [*rest, "link_nobody"]}).deleted_count == 6
    refused(errors.NotFound, "not_found", lambda: links.delete(link_id=link.id))
    assert links.count(request={"show_archived": True}) == with_archived


def analytics(analytics: Calls, table: dict) -> None:
    clicked = {"external_id": "ext_clicked"}
    groupings = {*table["answers"], *table["notParsed"], "timeseries"}
    assert {item.value for item in operations.QueryParamGroupBy} <= groupings, "a grouping is not covered"
    for group_by, expected in table["answers"].items():
        answer = analytics.retrieve(request={**clicked, "group_by": group_by})
        parsed = answer if isinstance(answer, list) else [answer]
        assert_like(parsed, expected if isinstance(expected, list) else [expected], group_by)
    assert analytics.retrieve(request={}).clicks == 3
    series = analytics.retrieve(request={**clicked, "group_by": "timeseries"})
    assert [point.clicks for point in series[-4:]] == [0, 1, 2, 0] and len(series) == 25, series
    top = analytics.retrieve(request={"group_by": "top_links", "start": "90 minutes ago", "end": "now"})
    assert isinstance(top[0], components.AnalyticsTopLinks) and [link.clicks for link in top] == [2], top
    for interval in operations.Interval:
        assert analytics.retrieve(request={**clicked, "interval": interval}).clicks == 3, interval
    assert analytics.retrieve(request={"country": "-DE", "timezone": "Asia/Kolkata"}).clicks == 2
    refused(errors.UnprocessableEntity, "unprocessable_entity", lambda: analytics.retrieve(request={"start": "yonder"}))


def events(events: Calls, table: dict) -> None:
    listed = events.list(request={})
    assert_like(listed, table["events"], "events")
    assert all(isinstance(event, operations.ClickEvent) for event in listed), listed
    assert [event.link.external_id for event in listed] == ["clicked"] * 3, listed
    assert (listed[0].click.qr, listed[0].click.trigger, listed[1].click.referer) == (True, "qr", "t.co"), listed
    oldest_first = events.list(request={"sort_order": "asc", "limit": 2, "page": 2})
    assert [event.click_id for event in oldest_first] == [listed[0].click_id], oldest_first
    assert [event.country for event in events.list(request={"country": "US,DE", "start": "24 hours ago"})] == ["US", "DE"]


def qr_codes(codes: Calls, address: str) -> None:
    # The client sends its defaults along, and whole numbers as 600.0.
    assert codes.get(request={"url": address})[1:4] == "PNG"
    assert codes.get(request={"url": address, "size": 203, "margin": 0, "include_margin": False})[1:4] == "PNG"
    too_small = {"url": address, "size": 20}
    refused(errors.UnprocessableEntity, "unprocessable_entity", lambda: codes.get(request=too_small))


def play(dub: Dub, name: str, suffix: str, run, table: dict) -> None:
    stories = [(tags, dub.tags, name), (folders, dub.folders, name), (domains, dub.domains, "links.example.test")]
    stories += [(links, dub.links, name), (analytics, dub.analytics, table), (events, dub.events, table)]
    stories.append((qr_codes, dub.qr_codes, "https://example.com/"))
    for story, resource, argument in stories:
        calls = Calls(resource, suffix, run)
        story(calls, argument)
        assert not calls.unmade, f"{type(resource).__name__}: not called: {calls.unmade}"
    absent(dub, suffix, run)


def read(path: str) -> dict:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


if __name__ == "__main__":
    gateway, key, clicks, arguments = sys.argv[1:]
    clicks, arguments = read(clicks), read(arguments)
    with Dub(token=key, server_url=gateway) as client:
        play(client, "sync", "", lambda answer: answer, clicks)
        Arguments(client, "", lambda answer: answer, arguments).check_everything()
    loop = asyncio.new_event_loop()
    client = Dub(token=key, server_url=gateway)
    # Asynchronous methods make their requests of the same types, whose arguments have been checked.
    play(client, "async", "_async", loop.run_until_complete, clicks)
    loop.run_until_complete(client.__aexit__(None, None, None))
