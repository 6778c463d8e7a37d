from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Draw(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DETERMINISTIC: _ClassVar[Draw]
    WITHOUT_REPLACEMENT: _ClassVar[Draw]
    IID: _ClassVar[Draw]
DETERMINISTIC: Draw
WITHOUT_REPLACEMENT: Draw
IID: Draw

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Description(_message.Message):
    __slots__ = ("revision", "model", "vocabulary", "tokenizer", "eos", "max_length", "max_nodes", "max_support", "max_sessions", "resume_s", "own_tree", "max_ahead")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    EOS_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    MAX_SUPPORT_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    RESUME_S_FIELD_NUMBER: _ClassVar[int]
    OWN_TREE_FIELD_NUMBER: _ClassVar[int]
    MAX_AHEAD_FIELD_NUMBER: _ClassVar[int]
    revision: int
    model: str
    vocabulary: int
    tokenizer: bytes
    eos: _containers.RepeatedScalarFieldContainer[int]
    max_length: int
    max_nodes: int
    max_support: int
    max_sessions: int
    resume_s: float
    own_tree: str
    max_ahead: int
    def __init__(self, revision: _Optional[int] = ..., model: _Optional[str] = ..., vocabulary: _Optional[int] = ..., tokenizer: _Optional[bytes] = ..., eos: _Optional[_Iterable[int]] = ..., max_length: _Optional[int] = ..., max_nodes: _Optional[int] = ..., max_support: _Optional[int] = ..., max_sessions: _Optional[int] = ..., resume_s: _Optional[float] = ..., own_tree: _Optional[str] = ..., max_ahead: _Optional[int] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("session", "open", "round", "mode", "close", "ahead")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    session: int
    open: Open
    round: Round
    mode: Mode
    close: Close
    ahead: Ahead
    def __init__(self, session: _Optional[int] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., round: _Optional[_Union[Round, _Mapping]] = ..., mode: _Optional[_Union[Mode, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ..., ahead: _Optional[_Union[Ahead, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("key", "prompt", "sampling", "known", "server_drafts")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    SERVER_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    prompt: _containers.RepeatedScalarFieldContainer[int]
    sampling: Sampling
    known: int
    server_drafts: bool
    def __init__(self, key: _Optional[bytes] = ..., prompt: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., known: _Optional[int] = ..., server_drafts: _Optional[bool] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "seed", "max_tokens", "stop_token_ids", "ignore_eos")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    seed: int
    max_tokens: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., max_tokens: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., ignore_eos: _Optional[bool] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("number", "tokens", "parents", "draw", "drawn")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    DRAW_FIELD_NUMBER: _ClassVar[int]
    DRAWN_FIELD_NUMBER: _ClassVar[int]
    number: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    parents: _containers.RepeatedScalarFieldContainer[int]
    draw: Draw
    drawn: Drawn
    def __init__(self, number: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., parents: _Optional[_Iterable[int]] = ..., draw: _Optional[_Union[Draw, str]] = ..., drawn: _Optional[_Union[Drawn, _Mapping]] = ...) -> None: ...

class Ahead(_message.Message):
    __slots__ = ("number", "version", "branches")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    number: int
    version: int
    branches: _containers.RepeatedCompositeFieldContainer[Branch]
    def __init__(self, number: _Optional[int] = ..., version: _Optional[int] = ..., branches: _Optional[_Iterable[_Union[Branch, _Mapping]]] = ...) -> None: ...

class Branch(_message.Message):
    __slots__ = ("end", "bonus", "tokens", "parents", "draw", "drawn")
    END_FIELD_NUMBER: _ClassVar[int]
    BONUS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    DRAW_FIELD_NUMBER: _ClassVar[int]
    DRAWN_FIELD_NUMBER: _ClassVar[int]
    end: int
    bonus: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    parents: _containers.RepeatedScalarFieldContainer[int]
    draw: Draw
    drawn: Drawn
    def __init__(self, end: _Optional[int] = ..., bonus: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., parents: _Optional[_Iterable[int]] = ..., draw: _Optional[_Union[Draw, str]] = ..., drawn: _Optional[_Union[Drawn, _Mapping]] = ...) -> None: ...

class Drawn(_message.Message):
    __slots__ = ("nodes", "sizes", "tokens", "weights")
    NODES_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    tokens: bytes
    weights: bytes
    def __init__(self, nodes: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., tokens: _Optional[bytes] = ..., weights: _Optional[bytes] = ...) -> None: ...

class Mode(_message.Message):
    __slots__ = ("server_drafts",)
    SERVER_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    server_drafts: bool
    def __init__(self, server_drafts: _Optional[bool] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Response(_message.Message):
    __slots__ = ("session", "verdict", "turn", "refusal")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    session: int
    verdict: Verdict
    turn: Turn
    refusal: Refusal
    def __init__(self, session: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., turn: _Optional[_Union[Turn, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("number", "path", "tokens", "ended", "waited_us", "step_us", "evicted", "taken")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAITED_US_FIELD_NUMBER: _ClassVar[int]
    STEP_US_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    number: int
    path: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    ended: bool
    waited_us: int
    step_us: int
    evicted: int
    taken: int
    def __init__(self, number: _Optional[int] = ..., path: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ..., ended: _Optional[bool] = ..., waited_us: _Optional[int] = ..., step_us: _Optional[int] = ..., evicted: _Optional[int] = ..., taken: _Optional[int] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("number", "tokens", "ended")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    number: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    ended: bool
    def __init__(self, number: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., ended: _Optional[bool] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "message", "retry_ms")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Refusal.Reason]
        NONSENSE: _ClassVar[Refusal.Reason]
        TOO_LARGE: _ClassVar[Refusal.Reason]
        BUSY: _ClassVar[Refusal.Reason]
        UNKNOWN: _ClassVar[Refusal.Reason]
        DRAINING: _ClassVar[Refusal.Reason]
        FAILED: _ClassVar[Refusal.Reason]
    UNSPECIFIED: Refusal.Reason
    NONSENSE: Refusal.Reason
    TOO_LARGE: Refusal.Reason
    BUSY: Refusal.Reason
    UNKNOWN: Refusal.Reason
    DRAINING: Refusal.Reason
    FAILED: Refusal.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_MS_FIELD_NUMBER: _ClassVar[int]
    reason: Refusal.Reason
    message: str
    retry_ms: int
    def __init__(self, reason: _Optional[_Union[Refusal.Reason, str]] = ..., message: _Optional[str] = ..., retry_ms: _Optional[int] = ...) -> None: ...
