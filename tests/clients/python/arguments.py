"""Each method with its default arguments and with each argument in turn, as arguments.json has them.

The arguments come from the client's own types, so that one that the table does not have is a failure.
"""

import collections.abc
import enum
import inspect
import json
import re
import typing

from dub.models import errors
from dub.types import BaseModel
from dub.types.basemodel import Unset
from typing_extensions import TypeAliasType

# What every method takes beside the arguments of its request.
OPTIONS = {"self", "retries", "server_url", "timeout_ms", "http_headers"}


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def camel(name: str) -> str:
    return re.sub("_([a-z])", lambda letter: letter[1].upper(), name)


def parts(annotation) -> list:
    """The types that a type is made of, such as str of Optional[List[str]]."""
    if isinstance(annotation, TypeAliasType):
        return parts(annotation.__value__)
    inner = typing.get_args(annotation)
    return [part for part_of in inner for part in parts(part_of)] if inner else [annotation]


def is_list(annotation) -> bool:
    if isinstance(annotation, TypeAliasType):
        return is_list(annotation.__value__)
    inner = typing.get_args(annotation)
    return typing.get_origin(annotation) in (list, collections.abc.Iterable) or any(is_list(part) for part in inner)


def model_of(annotation):
    """The class of an argument that has fields, if it is one."""
    models = (part for part in parts(annotation) if inspect.isclass(part) and issubclass(part, BaseModel))
    return next((model for model in models if model is not Unset), None)


def parameters(method) -> list:
    """The arguments of a method: name in the API, name in the client, type."""
    signature = inspect.signature(method).parameters
    return [(camel(name), name, parameter.annotation) for name, parameter in signature.items() if name not in OPTIONS]


def fields(model) -> list:
    """The fields of a class: name in the API, name in the client, type."""
    return [(field.alias or name, name, field.annotation) for name, field in model.model_fields.items()]


def flattened(arguments: list) -> dict:
    """The types of all arguments, by name. Those of an object stand under its name, but for objects that are a method's own."""
    found = {}
    for wire, _, annotation in arguments:
        model = model_of(annotation)
        if model is None or (is_list(annotation) and wire != "request"):
            found[wire] = annotation
        elif wire in ("request", "requestBody"):
            found |= flattened(fields(model))
        else:
            found |= {f"{wire}.{name}": field for name, field in flattened(fields(model)).items()}
    return found


def keywords(arguments: list, given: dict) -> dict:
    """What is given under the names of the API, under those of the client."""
    named = {}
    for wire, name, annotation in arguments:
        model = model_of(annotation)
        is_whole = wire in ("request", "requestBody")
        if model is not None and (is_whole or (wire in given and not is_list(annotation))):
            value = keywords(fields(model), given if is_whole else given[wire])
            named[name] = [value] if is_list(annotation) else value
        elif wire in given:
            named[name] = given[wire]
    return named


def shown(model) -> dict:
    """A parsed value under the names that it has in JSON."""
    return model.model_dump(mode="json", by_alias=True)


ANSWERS = {
    "links": lambda answer: [link.external_id for link in answer.result],
    "names": lambda answer: [named.name for named in answer],
    "slugs": lambda answer: [domain.slug for domain in answer.result],
    "number": lambda answer: answer,
    "object": shown,
    "first object": lambda answer: shown(answer[0]),
    "clicks": lambda answer: sum(row.clicks for row in (answer if isinstance(answer, list) else [answer])),
    "events": len,
    "image": lambda answer: answer,
}


def is_like(answer, expected) -> bool:
    """An object has the fields that are expected of it; all else is equal."""
    if isinstance(expected, dict) and expected.keys() == {"matches"}:
        return re.search(expected["matches"], answer) is not None
    if isinstance(expected, dict) and isinstance(answer, dict):
        return all(is_like(answer.get(name), value) for name, value in expected.items())
    return answer == expected


class Arguments:
    """Checks the methods of one client. `run` gets the answer of what a method returns."""

    def __init__(self, dub, suffix: str, run, table: dict):
        self.dub, self.suffix, self.run, self.table = dub, suffix, run, table
        link = self.call("links.get", {"externalId": "ext_clicked"})
        plain = self.call("links.get", {"externalId": "ext_plain"})
        self.known = {"domain": link.domain, "id": link.id, "tagId": link.tag_id, "folderId": link.folder_id}
        self.known["plainId"] = plain.id

    def method(self, name: str):
        resource, method = name.split(".")
        return getattr(getattr(self.dub, snake(resource)), snake(method) + self.suffix)

    def call(self, name: str, given: dict):
        method = self.method(name)
        return self.run(method(**keywords(parameters(method), given)))

    def filled(self, value):
        """A value of the table with what stands for ids replaced by them."""
        if isinstance(value, dict):
            return {name: self.filled(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.filled(inner) for inner in value]
        return re.sub(r"\{([a-z]\w+)\}", lambda name: self.known[name[1]], value) if isinstance(value, str) else value

    def check_everything(self) -> None:
        served = {name.split(".")[0] for name in self.table["methods"]}
        offered = {camel(name) for name in type(self.dub)._sub_sdk_map}
        assert offered <= served | set(self.table["notServed"]), f"not in the table: {offered - served}"
        for resource in served:
            members = vars(type(getattr(self.dub, snake(resource)))).items()
            methods = {f"{resource}.{camel(name)}" for name, member in members if inspect.isfunction(member)}
            methods = {name for name in methods if not name.endswith("Async")}
            methods -= {*self.table["methods"], *self.table["notServed"]}
            assert not methods, f"not in the table: {methods}"
        for name, method in self.table["methods"].items():
            self.check_method(name, method)

    def check_method(self, name: str, method: dict) -> None:
        cases = {}
        for prefix, groups in [("", method["takes"]), *((f"{at}.", groups) for at, groups in method.get("takesIn", {}).items())]:
            for group in groups:
                for argument, rows in self.table["groups"][group].items():
                    if self.table["only"].get(argument, "python") == "python":
                        cases.setdefault(prefix + argument, []).extend(rows)
        offered = flattened(parameters(self.method(name)))
        assert offered.keys() == cases.keys(), f"{name}: {sorted(offered.keys() ^ cases.keys())} in one place only"
        for argument, rows in cases.items():
            assert any(row.get("only", "python") == "python" for row in rows), f"{name}: {argument} is never given"
        for argument, annotation in offered.items():
            words = {word.value for part in parts(annotation) if isinstance(part, enum.EnumMeta) for word in part}
            given = {row["give"] for row in cases[argument] if isinstance(row["give"], str)}
            assert words <= given or not words, f"{name}: {argument}: {words - given} not in the table"
        default = method["default"]
        self.check(name, method, "", default if isinstance(default, dict) and "refuse" in default else {"get": default})
        for argument, rows in cases.items():
            for row in rows:
                if row.get("only", "python") == "python":
                    self.check(name, method, argument, row)

    def outcome(self, name: str, answers: str, given: dict) -> tuple:
        """The answer of a call, or the code and the message of its refusal."""
        try:
            answer = self.call(name, given)
        except errors.ResponseValidationError as unreadable:
            return {"unreadable": json.loads(unreadable.body)}, None
        except errors.DubError as refusal:
            return None, (refusal.data.error.code, refusal.data.error.message)
        answer = ANSWERS[answers](answer)
        if isinstance(answer, dict) and "error" in answer:
            return None, (answer["code"], answer["error"])
        return answer, None

    def check(self, name: str, method: dict, argument: str, row: dict) -> None:
        fresh = {"newId": ("links", {"url": "https://example.com/fresh"})}
        fresh |= {f"new{kind}Id": (f"{kind.lower()}s", {"name": "fresh"}) for kind in ("Tag", "Folder")}
        for known, (resource, request) in fresh.items():
            if f"{{{known}}}" in repr([method.get("needs"), row]):
                self.known[known] = self.call(f"{resource}.create", request).id
        given = self.filled({**method.get("needs", {}), **row.get("with", {})})
        given.pop(row.get("without"), None)
        inner = given
        for part in argument.split(".")[:-1]:
            inner = inner[part]
        last = argument.split(".")[-1]
        if argument:
            inner[last] = self.filled(row["give"])
        what = (name, argument, row)
        answer, refusal = self.outcome(name, method["answers"], given)
        if refusal or "refuse" in row:
            code, message = row.get("refuse", ("no refusal", ""))
            assert refusal and refusal[0] == code and message in refusal[1], (what, answer, refusal)
        elif "unreadable" in row:
            # The client has no type for the answer, and reports it as it came.
            expected = {"unreadable": json.loads(self.filled(json.dumps(row["unreadable"])))}
            assert answer == expected, (what, answer)
        else:
            expected = self.filled(row.get("get", {last: row.get("give")}))
            if method["answers"] == "number" and isinstance(expected, list):
                expected = len(expected)
            if method["answers"] == "image":
                default, _ = self.outcome(name, "image", self.filled(method["needs"]))
                assert answer[1:4] == "PNG", what
                answer = "the same image" if answer == default else "another image"
            assert is_like(answer, expected), (what, answer)
        self.clean_up()

    def clean_up(self) -> None:
        """Deletes the links, tags and folders that a call has made."""
        for resource in ("tags", "folders"):
            kept = {row["name"] for row in self.table[resource]}
            for made in self.call(f"{resource}.list", {}):
                if made.name not in kept:
                    self.call(f"{resource}.delete", {"id": made.id})
        links = self.call("links.list", {"showArchived": True}).result
        made = [link.id for link in links if link.external_id not in ("clicked", "plain", "archived")]
        if made:
            self.call("links.deleteMany", {"linkIds": made})
