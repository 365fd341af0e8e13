import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Message(_message.Message):
    __slots__ = ("data", "attributes", "message_id", "publish_time", "ordering_key")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DATA_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    attributes: _containers.ScalarMap[str, str]
    message_id: str
    publish_time: _timestamp_pb2.Timestamp
    ordering_key: str
    def __init__(self, data: _Optional[bytes] = ..., attributes: _Optional[_Mapping[str, str]] = ..., message_id: _Optional[str] = ..., publish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ordering_key: _Optional[str] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[PublishOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[PublishOutcome, _Mapping]]] = ...) -> None: ...

class PublishStreamRequest(_message.Message):
    __slots__ = ("topic", "messages", "sequence")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    sequence: int
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., sequence: _Optional[int] = ...) -> None: ...

class PublishStreamResponse(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[PublishedFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[PublishedFrame, _Mapping]]] = ...) -> None: ...

class PublishedFrame(_message.Message):
    __slots__ = ("outcomes", "sequence")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[PublishOutcome]
    sequence: int
    def __init__(self, outcomes: _Optional[_Iterable[_Union[PublishOutcome, _Mapping]]] = ..., sequence: _Optional[int] = ...) -> None: ...

class PublishOutcome(_message.Message):
    __slots__ = ("message_id", "code", "http_status", "error_code", "error_message", "headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    code: int
    http_status: int
    error_code: str
    error_message: str
    headers: _containers.ScalarMap[str, str]
    def __init__(self, message_id: _Optional[str] = ..., code: _Optional[int] = ..., http_status: _Optional[int] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("start", "acknowledge", "nack", "modify_ack_deadline")
    START_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    MODIFY_ACK_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    start: Start
    acknowledge: Acknowledge
    nack: Nack
    modify_ack_deadline: ModifyAckDeadline
    def __init__(self, start: _Optional[_Union[Start, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., nack: _Optional[_Union[Nack, _Mapping]] = ..., modify_ack_deadline: _Optional[_Union[ModifyAckDeadline, _Mapping]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("topic", "subscription", "max_outstanding_messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTSTANDING_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    max_outstanding_messages: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., max_outstanding_messages: _Optional[int] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("ack_ids",)
    ACK_IDS_FIELD_NUMBER: _ClassVar[int]
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ack_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("ack_ids", "delay_ms")
    ACK_IDS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    def __init__(self, ack_ids: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ModifyAckDeadline(_message.Message):
    __slots__ = ("ack_ids", "ack_deadline_seconds")
    ACK_IDS_FIELD_NUMBER: _ClassVar[int]
    ACK_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    ack_deadline_seconds: int
    def __init__(self, ack_ids: _Optional[_Iterable[str]] = ..., ack_deadline_seconds: _Optional[int] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("received_messages", "refused")
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    received_messages: _containers.RepeatedCompositeFieldContainer[ReceivedMessage]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedAck]
    def __init__(self, received_messages: _Optional[_Iterable[_Union[ReceivedMessage, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[RefusedAck, _Mapping]]] = ...) -> None: ...

class ReceivedMessage(_message.Message):
    __slots__ = ("ack_id", "message", "delivery_attempt", "ack_deadline")
    ACK_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ACK_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ack_id: str
    message: Message
    delivery_attempt: int
    ack_deadline: _timestamp_pb2.Timestamp
    def __init__(self, ack_id: _Optional[str] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., delivery_attempt: _Optional[int] = ..., ack_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RefusedAck(_message.Message):
    __slots__ = ("ack_id", "code", "message")
    ACK_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ack_id: str
    code: str
    message: str
    def __init__(self, ack_id: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
