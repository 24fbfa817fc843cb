"""The vendor's own library on the other side of the fake server, in a process of its own: it takes 168 MB, and keeps
an event loop for itself.

Reads one line of JSON: `server`, `calls` of a webhook, `frames` as hex, and how many `events` to hear over a long
connection. Writes a line of JSON for each of `api`, `hooks`, `frames` and `events`.
"""

from __future__ import annotations

import base64
import io
import json
import os
import sys
import threading
from typing import Any

import lark_oapi as lark  # type: ignore[import-untyped]
from lark_oapi.api.im.v1 import (  # type: ignore[import-untyped]
    CreateFileRequest,
    CreateFileRequestBody,
    CreateImageRequest,
    CreateImageRequestBody,
    CreateMessageRequest,
    CreateMessageRequestBody,
    GetMessageRequest,
    GetMessageResourceRequest,
    PatchMessageRequest,
    PatchMessageRequestBody,
    ReplyMessageRequest,
    ReplyMessageRequestBody,
    UpdateMessageRequest,
    UpdateMessageRequestBody,
)
from lark_oapi.core.model import RawRequest  # type: ignore[import-untyped]
from lark_oapi.event.callback.model.p2_card_action_trigger import (  # type: ignore[import-untyped]
    P2CardActionTrigger,
    P2CardActionTriggerResponse,
)
from lark_oapi.ws.pb.pbbp2_pb2 import Frame  # type: ignore[import-untyped]

from tests.fakes.feishu import APP_ID, SECRET

OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the library writes its log to stdout


def say(kind: str, reply_json: Any) -> None:
    print(json.dumps({kind: reply_json}), file=OUT, flush=True)


def reply_json(answer: Any) -> dict[str, Any]:
    """An answer as the library understood it."""
    data = json.loads(lark.JSON.marshal(answer.data)) if getattr(answer, "data", None) is not None else None
    return {"code": answer.code, "msg": answer.msg, "data": data}


def use_api(server: str, chat: str, received: str) -> list[dict[str, Any]]:
    """What a bot does, in order."""
    im = lark.Client.builder().app_id(APP_ID).app_secret(SECRET).domain(server).build().im.v1
    card = json.dumps({
        "schema": "2.0", "config": {"update_multi": True},
        "body": {"elements": [{"tag": "markdown", "content": "**hi**"}]},
    })  # fmt: skip

    def create(kind: str, content: str, uuid: str, to: str = chat) -> Any:
        body = CreateMessageRequestBody.builder().receive_id(to).msg_type(kind).content(content).uuid(uuid).build()
        return im.message.create(CreateMessageRequest.builder().receive_id_type("chat_id").request_body(body).build())

    found = [reply_json(create("interactive", card, "k1")), reply_json(create("interactive", card, "k1"))]
    id = found[0]["data"]["message_id"]
    reply = ReplyMessageRequestBody.builder().msg_type("text").content(json.dumps({"text": "yes"})).uuid("k2")
    request = (
        ReplyMessageRequest.builder().message_id(received).request_body(reply.reply_in_thread(True).build()).build()
    )
    found.append(reply_json(im.message.reply(request)))
    patch = PatchMessageRequestBody.builder().content(card.replace("hi", "ho")).build()
    found.append(reply_json(im.message.patch(PatchMessageRequest.builder().message_id(id).request_body(patch).build())))
    text = UpdateMessageRequestBody.builder().msg_type("text").content(json.dumps({"text": "no"})).build()
    reply_id = found[2]["data"]["message_id"]
    found.append(
        reply_json(im.message.update(UpdateMessageRequest.builder().message_id(reply_id).request_body(text).build()))
    )
    found.append(reply_json(im.message.get(GetMessageRequest.builder().message_id(id).build())))
    image = CreateImageRequestBody.builder().image_type("message").image(_stream(b"PNG", "a.png")).build()
    found.append(reply_json(im.image.create(CreateImageRequest.builder().request_body(image).build())))
    file = (
        CreateFileRequestBody.builder().file_type("stream").file_name("a.txt").file(_stream(b"text", "a.txt")).build()
    )
    found.append(reply_json(im.file.create(CreateFileRequest.builder().request_body(file).build())))
    found.append(reply_json(create("file", json.dumps({"file_key": found[-1]["data"]["file_key"]}), "k3")))
    request = GetMessageResourceRequest.builder().message_id(received).file_key("file_1").type("file").build()
    resource = im.message_resource.get(request)
    found.append({"code": resource.code, "msg": resource.file.read().decode()})
    found.append(reply_json(create("interactive", "{", "k4")))
    found.append(reply_json(create("text", json.dumps({"text": "hi"}), "k5", "oc_elsewhere")))
    return found


def _stream(data: bytes, name: str) -> io.BytesIO:
    stream = io.BytesIO(data)
    stream.name = name
    return stream


def handler(key: str, token: str, received: list[Any]) -> Any:
    """The library's own dispatcher."""

    def message(event: Any) -> None:
        received.append(json.loads(lark.JSON.marshal(event.event)))

    def pressed(event: P2CardActionTrigger) -> P2CardActionTriggerResponse:
        received.append(json.loads(lark.JSON.marshal(event.event)))
        return P2CardActionTriggerResponse({"toast": {"type": "success", "content": "thanks"}})

    builder = lark.EventDispatcherHandler.builder(key, token)
    builder = builder.register_p2_im_message_receive_v1(message).register_p2_im_message_recalled_v1(message)
    return builder.register_p2_card_action_trigger(pressed).build()


def answer_hooks(key: str, token: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers = []
    for call in calls:
        received: list[Any] = []
        request = RawRequest()
        request.uri = "/hooks/feishu"
        names = {"x-lark-signature": "X-Lark-Signature", "x-lark-request-timestamp": "X-Lark-Request-Timestamp"}
        names["x-lark-request-nonce"] = "X-Lark-Request-Nonce"
        request.headers = {names.get(name, name): value for name, value in call["headers"].items()}
        request.body = base64.b64decode(call["body"])
        answer = handler(key, token, received).do(request)
        answers.append({"status": answer.status_code, "body": answer.content.decode(), "heard": received})
    return answers


def read_frames(frames: list[str]) -> list[Any]:
    found = []
    for data in frames:
        frame = Frame()
        frame.ParseFromString(bytes.fromhex(data))
        headers = [[header.key, header.value] for header in frame.headers]
        fields = [frame.SeqID, frame.LogID, frame.service, frame.method, headers, frame.payload.hex()]
        found.append([fields, frame.SerializeToString().hex()])
    return found


def listen(server: str, many: int) -> list[Any]:
    received: list[Any] = []
    client = lark.ws.Client(APP_ID, SECRET, event_handler=handler("", "", received), domain=server)
    threading.Thread(target=client.start, daemon=True).start()
    sys.stdin.readline()  # until who asked has seen the answers
    assert len(received) == many
    return received


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    say("api", use_api(asked["server"], asked["chat"], asked["heard"]))
    say("hooks", answer_hooks(asked["key"], asked["token"], asked["hooks"]))
    say("frames", read_frames(asked["frames"]))
    say("events", listen(asked["server"], asked["events"]))
    os._exit(0)  # its client has no end


if __name__ == "__main__":
    main()
