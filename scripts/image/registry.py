"""A registry, reached as container tools reach it: by TLS, with the credentials that they keep, and one line where it fails.

The library's own requests are not used: they repeat a refused request for two minutes, and send Basic credentials to the wrong host.
"""

import base64
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys

import requests
from oras.auth.utils import get_basic_auth, parse_auth_header
from oras.provider import Registry

LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
# Seconds to connect, and between two packets of an answer.
TIMEOUT = (10, 300)


class Client(Registry):
    """A registry, for one repository and for `actions`, which are "pull" or "pull,push".

    It is reached by TLS, except with `plain_http`, and on loopback where the registry does not speak TLS.
    """

    def __init__(self, reference, actions, plain_http=False):
        super().__init__(hostname=reference.split("/")[0], insecure=plain_http, tls_verify=authorities())
        self._repository = self.get_container(reference).api_prefix
        self._actions = actions
        # The credentials and the Authorization header, once the registry has asked for them.
        self._credentials = None
        self._authorization = None
        self.session.auth = self._authorize
        try:
            self._greet()
        except requests.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                reason = re.search(r"certificate verify failed: ([^(']+)", str(error))
                sys.exit(
                    f"the certificate of {self.hostname} is not trusted: {reason[1].strip() if reason else error}. "
                    "SSL_CERT_FILE names the file with the certificate of its authority"
                )
            if not LOOPBACK.fullmatch(self.hostname):
                sys.exit(f"{self.hostname} does not speak TLS; PLAIN_HTTP=1 pushes without it")
            self.prefix = "http"
            self._greet()

    def _greet(self):
        """Logs in, where the registry asks for that."""
        response = self.do_request(f"{self.prefix}://{self.hostname}/v2/")
        if response.status_code == 404:
            sys.exit(f"{self.hostname} is not a container registry")

    def _authorize(self, request):
        # A registry may have an upload sent to another host, which must not see the credentials.
        if self._authorization and request.url.startswith(f"{self.prefix}://{self.hostname}/"):
            request.headers["Authorization"] = self._authorization
        return request

    def do_request(self, url, method="GET", data=None, headers=None, json=None, stream=False):
        def send():
            return self.session.request(
                method,
                url,
                data=data,
                headers=headers,
                json=json,
                stream=stream,
                timeout=TIMEOUT,
                verify=self._tls_verify,
            )

        response = send()
        # At first, and when a token has expired.
        if response.status_code == 401:
            self._log_in(response.headers.get("WWW-Authenticate", ""))
            response = send()
        if response.status_code in (401, 403):
            if url.endswith("/v2/"):
                self._not_accepted()
            user = self._credentials.user if self._credentials else "an anonymous user"
            action = "push to" if "push" in self._actions else "pull from"
            sys.exit(f"{user} may not {action} {self.hostname}/{self._repository}{errors(response)}")
        # The library asks by HEAD what the registry has.
        if response.status_code >= 400 and method != "HEAD" and not url.endswith("/v2/"):
            sys.exit(f"{self.hostname} answers {response.status_code} {response.reason}{errors(response)}")
        return response

    def _log_in(self, challenge):
        self._authorization = None
        self._credentials = self._credentials or Credentials.kept_for(self.hostname)
        basic = self._credentials and f"Basic {self._credentials.basic}"
        if challenge.lower().startswith("basic"):
            self._authorization = basic or self._not_accepted()
            return
        asked = parse_auth_header(challenge)
        if not asked.realm:
            sys.exit(f"{self.hostname} asks for neither a password nor a token")
        if basic and self.prefix == "https" and not asked.realm.startswith("https://"):
            sys.exit(f"{self.hostname} asks to send the password without TLS, to {asked.realm}")
        # The challenge names what this request needs; a push needs more later.
        response = self.session.get(
            asked.realm,
            params={"service": asked.service, "scope": f"repository:{self._repository}:{self._actions}"},
            headers={"Authorization": basic} if basic else {},
            timeout=TIMEOUT,
            verify=self._tls_verify,
        )
        if response.status_code in (401, 403):
            self._not_accepted()
        response.raise_for_status()
        answer = response.json()
        self._authorization = f"Bearer {answer.get('token') or answer.get('access_token')}"

    def _not_accepted(self):
        if self._credentials:
            sys.exit(f"{self.hostname} does not accept the password that {configuration()} has for {self._credentials.user}")
        sys.exit(f"{self.hostname} asks for a password and {configuration()} has none; to add it: docker login {self.hostname}")


class Credentials:
    """A user name and a password."""

    def __init__(self, basic):
        # As Basic authentication encodes them.
        self.basic = basic
        self.user = base64.b64decode(basic).decode().partition(":")[0]

    @classmethod
    def kept_for(cls, host):
        """The credentials that `docker login` keeps for a registry, if it keeps any."""
        file = configuration()
        if not file.exists():
            return None
        try:
            kept = json.loads(file.read_text())
            helper = kept.get("credHelpers", {}).get(host) or kept.get("credsStore")
            # Some tools keep addresses such as https://registry.example.com/v1/.
            auths = {re.sub(r"^https?://|/.*", "", name): auth for name, auth in kept.get("auths", {}).items()}
            basic = (helper and from_helper(helper, host)) or auths.get(host, {}).get("auth")
            return cls(basic) if basic else None
        except (ValueError, AttributeError, KeyError) as error:
            # Of the file's contents nothing is printed.
            sys.exit(f"{file} is not a configuration of docker: {type(error).__name__}")


def configuration():
    """Where container tools keep credentials."""
    return pathlib.Path(os.environ.get("DOCKER_CONFIG") or pathlib.Path.home() / ".docker") / "config.json"


def from_helper(helper, host):
    """The credentials that a helper of docker has for a registry, if it has any."""
    try:
        answer = subprocess.run([f"docker-credential-{helper}", "get"], input=host, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(f"{configuration()} names docker-credential-{helper}, which is not installed")
    if answer.returncode != 0:
        # As all helpers say it.
        if "credentials not found" in answer.stdout:
            return None
        sys.exit(f"docker-credential-{helper} fails: {' '.join((answer.stdout + answer.stderr).split())}")
    found = json.loads(answer.stdout)
    return get_basic_auth(found["Username"], found["Secret"])


def authorities():
    """The certificates of authorities: those that a variable names, else the system's, else the library's."""
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        given = os.environ.get(variable)
        if given and not os.path.exists(given):
            sys.exit(f"{variable} names {given}, which does not exist")
        if given:
            return given
    found = ssl.get_default_verify_paths()
    return found.cafile or found.capath or True


def errors(response):
    """What a registry says of a request that it refuses."""
    try:
        said = "; ".join(error.get("message") or error["code"] for error in response.json()["errors"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""
    return f": {said}"


def explained(error):
    """Why a registry could not be reached."""
    cause = error.args[0] if error.args else error
    return f"no answer: {getattr(cause, 'reason', cause)}"
