"""The HTTP status that each error of the agent is answered with."""

from collections.abc import Mapping
from http import HTTPStatus

from agent.apps import errors as app_errors
from agent.engine.errors import (
    DiskFull,
    EngineConflict,
    EngineError,
    ImageServerBusy,
    ImageServerUnavailable,
    ImageUnavailable,
    InvalidParameter,
    ObjectNotFound,
)
from agent.state.database import StoreError

# A class stands for its subclasses, except those that are listed themselves.
STATUS_BY_ERROR: Mapping[type[Exception], int] = {
    app_errors.InvalidApp: HTTPStatus.BAD_REQUEST,
    app_errors.ImageNotAllowed: HTTPStatus.FORBIDDEN,
    app_errors.InvalidLabel: HTTPStatus.BAD_REQUEST,
    app_errors.InvalidPassword: HTTPStatus.BAD_REQUEST,
    app_errors.InvalidData: HTTPStatus.BAD_REQUEST,
    app_errors.DataBrokenOff: HTTPStatus.BAD_REQUEST,
    app_errors.DataTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    app_errors.KeyLost: HTTPStatus.FORBIDDEN,
    app_errors.PortForbidden: HTTPStatus.FORBIDDEN,
    app_errors.AppNotFound: HTTPStatus.NOT_FOUND,
    app_errors.LabelNotFound: HTTPStatus.NOT_FOUND,
    app_errors.RevisionNotFound: HTTPStatus.NOT_FOUND,
    ImageServerBusy: HTTPStatus.TOO_MANY_REQUESTS,
    ImageServerUnavailable: HTTPStatus.BAD_GATEWAY,
    ImageUnavailable: HTTPStatus.NOT_FOUND,
    InvalidParameter: HTTPStatus.BAD_REQUEST,
    app_errors.AppError: HTTPStatus.CONFLICT,
    ObjectNotFound: HTTPStatus.CONFLICT,
    EngineConflict: HTTPStatus.CONFLICT,
    app_errors.TooManyApps: HTTPStatus.INSUFFICIENT_STORAGE,
    app_errors.TooMuchKeptData: HTTPStatus.INSUFFICIENT_STORAGE,
    DiskFull: HTTPStatus.INSUFFICIENT_STORAGE,
    EngineError: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
}
