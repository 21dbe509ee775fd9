"""A schema registry, by the API that Confluent's, Karapace and Apicurio share: schemas and their numbers."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlsplit

from lowtide.conf import Conf, RegistryConf
from lowtide.conf.secret import read_secret
from lowtide.errors import ConfError, FlowError, ServiceUnavailable
from lowtide.flow.formats.avro import AvroFormat, Bound, SchemaUnknown
from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Read, Write

PAUSE_S = 0.2
CALL_LIMIT_S = 5.0
_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """One registry.

    Attributes:
        url: Where it is.
        limit_s: How long it may be away.
        username: The login's name; None for no login.
        password: Theirs.
        ca_file: The authority that signed its certificate, if not one that the machine trusts.
    """

    url: str
    limit_s: float
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    def schema(self, number: int) -> str:
        """The schema of a number, as JSON.

        Raises:
            SchemaUnknown: there is none.
            ServiceUnavailable: the registry does not answer, or refuses us.
        """
        found = self._asked("GET", f"/schemas/ids/{number}", None)
        if found is None:
            raise SchemaUnknown(f"the schema registry at {self.url} has no schema {number}")
        return str(found["schema"])

    def register(self, subject: str, schema: str) -> int:
        """The number of a schema under a subject; it is registered if it is not.

        Raises:
            FlowError: the registry does not take it.
            ServiceUnavailable: as `schema`.
        """
        found = self._asked("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        assert found is not None, "a subject is made by its first schema"
        return int(found["id"])

    def _asked(self, method: str, path: str, body: Any) -> Any:
        """Return the answer; None for not found. Retries for `limit_s` while the registry is away."""
        deadline = time.monotonic() + self.limit_s
        while True:
            try:
                return self._answer(method, path, body)
            except (OSError, ValueError) as error:
                if time.monotonic() > deadline:
                    raise ServiceUnavailable(
                        f"the schema registry does not answer within {self.limit_s:g} s: {error}",
                        where=self.url,
                        way_out="check that it runs, and that [registry] of the conf names it",
                    ) from error
            time.sleep(PAUSE_S)

    def _answer(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data, method=method)  # noqa: S310 - see registry_of
        request.add_header("Accept", _TYPE)
        request.add_header("Content-Type", _TYPE)
        if self.username is not None:
            login = base64.b64encode(f"{self.username}:{self.password or ''}".encode()).decode()
            request.add_header("Authorization", f"Basic {login}")
        context = ssl.create_default_context(cafile=self.ca_file) if self.url.startswith("https:") else None
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _Redirects())
        try:
            with opener.open(request, timeout=CALL_LIMIT_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            said = error.read(1_000).decode(errors="replace")
            if error.code == 404 and method == "GET":
                return None
            if error.code in (401, 403):
                raise ServiceUnavailable(
                    f"the schema registry refuses the login: {error.code} {said}",
                    where=self.url,
                    way_out="correct username and password in [registry] of the conf",
                ) from None
            if error.code < 500:
                raise FlowError(
                    f"the schema registry rejects the flow's schema: {said}",
                    where=f"{self.url}{path}",
                    way_out="change the dataclass so that its schema is compatible with earlier ones, or name another "
                    "subject=",
                ) from None
            raise OSError(f"{error.code} {said}") from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a registry's redirects as long as no password goes to another server, or goes there unencrypted."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Follow a redirect unless it would send the password elsewhere or unencrypted (errors: ServiceUnavailable)."""
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        # A port that is not written is None in both, so http and https of one host differ only in their scheme.
        same = (before.hostname, before.port) == (after.hostname, after.port)
        if req.has_header("Authorization") and not (same and after.scheme in (before.scheme, "https")):
            raise ServiceUnavailable(
                f"the schema registry redirects to {after.scheme}://{after.netloc}, which would get the password",
                where=f"{before.scheme}://{before.netloc}",
                way_out="if that is the registry, name it: url in [registry] of the conf",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def registry_of(conf: Conf, name: str) -> SchemaRegistry:
    """The registry of a name; ConfError if the conf has none, or its secret cannot be read."""
    known = conf.registry.get(name)
    if known is None:
        raise ConfError(
            f"the flow uses the schema registry {name!r}, which the conf does not name",
            where=f"[registry.{name}] of the conf",
            way_out=f'write [registry.{name}] with url = "http://..."',
        )
    return _made(name, known, conf.kafka.reach_limit_ms / 1000)


def _made(name: str, known: RegistryConf, limit_s: float) -> SchemaRegistry:
    password = read_secret(f"registry.{name}", "password", known.password_env, known.password_file)
    return SchemaRegistry(known.url, limit_s, known.username, password, known.ssl_ca_file)


def bound(plan: Plan, conf: Conf) -> Plan:
    """A plan whose Avro formats know their registry, and the numbers of the schemas that they write.

    Raises:
        ConfError: the conf does not name a registry.
        FlowError: a registry does not take a schema.
        ServiceUnavailable: one does not answer.
    """
    return replace(plan, vertices=tuple(_with_registry(vertex, conf) for vertex in plan.vertices))


def _with_registry(vertex: Vertex, conf: Conf) -> Vertex:
    step = vertex.step
    if isinstance(step, Read) and isinstance(step.source.format, AvroFormat):
        form = step.source.format
        made = replace(form, bound=Bound(registry_of(conf, form.registry)))
        return replace(vertex, step=replace(step, source=replace(step.source, format=made)))
    if isinstance(step, Write) and isinstance(step.sink, KafkaSink) and isinstance(step.sink.format, AvroFormat):
        form = step.sink.format
        registry = registry_of(conf, form.registry)
        number = registry.register(form.subject or f"{step.sink.topic}-value", form.text)
        made = replace(form, bound=Bound(registry, number))
        return replace(vertex, step=replace(step, sink=replace(step.sink, format=made)))
    return vertex
