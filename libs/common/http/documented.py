"""The refusals that every open API operation documents."""

from litestar.openapi.datastructures import ResponseSpec

from libs.common.envelope import Failure

SENTENCES = {
    400: "An input is wrong; `errMsg` names the field",
    401: "No token, or one that is not valid",
    403: "The caller may not do this",
    404: "There is no such thing, or none that the caller may see",
    405: "The path has no such method",
    409: "The request contradicts what is stored",
    413: "The body is larger than the limit",
    415: "The content type is not one that this operation reads",
    429: "Too many requests; `Retry-After` says when to come back",
    500: "Our fault; `requestId` finds it in the log",
    503: "Overloaded or starting; `Retry-After` says when to come back",
    504: "Something of ours did not answer in time; what was asked for may still happen",
}

REFUSALS: dict[int, ResponseSpec] = {
    status: ResponseSpec(data_container=Failure, description=sentence, generate_examples=False)
    for status, sentence in SENTENCES.items()
}
