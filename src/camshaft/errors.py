"""Every failure that a user can meet, as one tree. Each names its cause and the way out, and has an OpenAI-style code."""

from __future__ import annotations

from camshaft.types import ErrorInfo


class CamshaftError(Exception):
    """Base of all. `param` names the request field at fault, where there is one."""

    status = 500
    code = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def info(self) -> ErrorInfo:
        """The wire form of this error."""
        return ErrorInfo(code=self.code, message=self.message, status=self.status, param=self.param, retry_after_s=self.retry_after_s)


class BadRequest(CamshaftError):
    status = 400
    code = "invalid_request_error"


class PromptTooLong(BadRequest):
    code = "context_length_exceeded"


class BadGrammar(BadRequest):
    code = "invalid_grammar"


class Unauthorized(CamshaftError):
    status = 401
    code = "invalid_api_key"


class UnknownToken(Unauthorized):
    """Of the admin API."""

    code = "invalid_admin_token"


class UnknownModel(CamshaftError):
    status = 404
    code = "model_not_found"


class BodyTooLarge(BadRequest):
    status = 413
    code = "body_too_large"


class RequestTooLarge(BadRequest):
    """Larger than the bound that it would have to fit into, however long it waited."""

    status = 413
    code = "request_too_large"


class Cancelled(CamshaftError):
    """The client left. 499 is nginx's number for it; nobody is there to read it, but logs and metrics are."""

    status = 499
    code = "cancelled"


class Overloaded(CamshaftError):
    """Full for now. `retry_after_s` is computed from the rate at which the queue drains."""

    status = 429
    code = "overloaded"


class RateLimited(Overloaded):
    """The tenant is over a limit of its own. `retry_after_s` is exact: until what was asked for fits."""

    code = "rate_limit_exceeded"


class DeadlineExceeded(CamshaftError):
    status = 504
    code = "deadline_exceeded"


class Unavailable(CamshaftError):
    status = 503
    code = "unavailable"


class QueueFull(Unavailable):
    """The whole queue is full, whoever asks. `retry_after_s` is when a place is free."""

    code = "queue_full"


class QueueTimeout(Unavailable):
    """It waited for a replica as long as the line lets anybody wait."""

    code = "queue_timeout"


class DeadlineUnmeetable(Unavailable):
    """At the measured rate the work before it takes longer than its deadline allows; said at once, not after the wait."""

    code = "deadline_unmeetable"


class Draining(Unavailable):
    code = "draining"


class UpstreamRefused(Unavailable):
    """The server behind a model does not take our key or account. Its operators can mend that, and no client."""

    code = "upstream_refused"


class ReplicaLost(Unavailable):
    """The replica died, hung or cut the stream, and it could not go on elsewhere."""

    code = "replica_lost"


class CircuitOpen(Unavailable):
    """Every replica that could answer is resting after faults."""

    code = "circuit_open"


class Forbidden(CamshaftError):
    """The key is known, and may not do this."""

    status = 403
    code = "forbidden"


class EngineFault(CamshaftError):
    """Our fault. The rows of the failed step end with this; the engine lives on."""

    code = "engine_fault"


class ConfigError(CamshaftError):
    """A setting that cannot work, found at start."""

    code = "config_error"


class ModelError(CamshaftError):
    """A model file that is damaged, hostile or of a kind that is not supported. Says which, and what is supported."""

    code = "model_error"


class DownloadError(CamshaftError):
    """A model that could not be fetched or whose checksum is wrong."""

    code = "download_error"


def _tree(cls: type[CamshaftError]) -> dict[str, type[CamshaftError]]:
    found = {cls.code: cls}
    for sub in cls.__subclasses__():
        found |= _tree(sub)
    return found


CODES = frozenset(_tree(CamshaftError))  # closed: the codes of this module's errors


def from_info(info: ErrorInfo) -> CamshaftError:
    """The exception that `info` describes; an unknown code keeps its status on the base class."""
    cls = _tree(CamshaftError).get(info.code, CamshaftError)
    error = cls(info.message, param=info.param, retry_after_s=info.retry_after_s)
    error.status = info.status
    return error
