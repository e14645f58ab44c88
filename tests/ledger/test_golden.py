"""The bytes of every command and of a checkpoint, frozen: a log must stay readable."""

from __future__ import annotations

import typing
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Literal

import msgspec
import pytest

from mainstem.ledger.entry import decode_command, encode_command
from mainstem.ledger.registry import REGISTRY

from .test_checkpoint import FULL


def example(kind: Any, number: int = 1) -> Any:
    """A value of this type that differs from defaults; the same in every run."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return arguments[-1]
    if arguments and type(None) in arguments:
        return example(arguments[0], number)
    if origin is tuple:
        kinds = [arguments[0]] * 2 if arguments[1:] == (Ellipsis,) else arguments
        return tuple(example(one, number + place) for place, one in enumerate(kinds))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        if kind.__name__ == "TopicConfig":
            return kind(durability="memory", cap_records=number)
        return kind(*(example(hints[name], number + at) for at, name in enumerate(kind.__struct_fields__)))
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return kind(1)
    return {int: number, bool: True, float: number + 0.5, bytes: bytes([number]) * 2, str: f"s{number}"}[kind]


# Frozen with the first release. Until then the format may change, and these with it.
GOLDEN = {
    "CreateTopic": (
        "9601a27331c40202020382aa6475726162696c697479a66d656d6f7279ab6361705f7265636f72647304a27335"
    ),
    "DeleteTopic": "9302c4020101c3",
    "AlterTopic": "9303c402010182aa6475726162696c697479a66d656d6f7279ab6361705f7265636f72647302",
    "AddPartitions": "9304c402010102",
    "Trim": "960a0102a374746c04c3",
    "DeleteRecords": "940b019292020392030403",
    "RaiseCeilings": "920c92920102920203",
    "MarkLost": "950d010203a27334",
    "AllocateProducer": "9214a27331",
    "ExpireProducers": "921501",
    "CommitOffsets": "961ea2733192930203a27334930304a27335920304a2733405",
    "DeleteOffsets": "931fa27331920203",
    "Take": "9420a273310203",
    "ExpireOffsets": "9421a2733192020303",
    "Boot": "952801a27332c3a27334",
    "Halt": "922901",
    "InitProducer": "9732a27331020304c3c3",
    "AddStreamsToTransaction": "9533a273310203920405",
    "AddGroupToTransaction": "9534a273310203a27334",
    "TransactionOffsets": "9835a273310203a2733492930506a27337930607a27338920607c3",
    "EndTransaction": "9636a273310203c3c3",
    "ExpireTransactions": "93379293a27331020393a273320304c3",
    "ForgetTransactionalIds": "923801",
    "BeginTransaction": "9439a2733102a27333",
    "AckInTransaction": "993aa27331020304a27335069292070892080908",
    "PublishSequence": "96ccfa01a27332030405",
    "PublishExclusively": "93cd01190102",
    "RaiseProducerEpoch": "94ccfb0102c3",
    "RaiseCompactionHorizon": "93cd01360102",
    "Claim": "9446019294a2733203040594a2733304050603",
    "Ack": "954701a27332920304920405",
    "Nack": "964801a2733292030492040505",
    "Extend": "964901a2733292030404920506",
    "ExpireLeases": "924a01",
    "Bury": "944b01920203c3",
    "NoteCopies": "954c0192020303c3",
    "PutRouter": "9a50a27331c4020202c4020303c3c392c4020606c3c3ac65786163746c795f6f6e636592090a",
    "DeleteRouter": "9251a27331",
    "Forward": "9452010203",
    "NoteForwarded": "965301020304c3",
    "PassOver": "9754010203040506",
    "TakeTask": "975aa27331a2733203040506",
    "ReleaseTask": "935ba2733102",
    "ExtendTask": "945ca273310203",
    "SwapParts": (
        "955d010292930304059304050692950405069297a2733708090a0b0c0d97a27338090a0b0c0d0e08950506079297a273"
        "38090a0b0c0d0e97a273390a0b0c0d0e0f09"
    ),
    "RetireParts": "925e920102",
    "ForgetObjects": "925f92a27331a27332",
    "CreateNamespace": "9364a273319292a27332a2733392a27333a27334",
    "DropNamespace": "9265a27331",
    "PutNamespaceProperties": "9466a273319292a27332a2733392a27333a2733492a27333a27334",
    "CreateTable": "9767a27331a27332c4020303a27334c4020505a476696577",
    "CommitTables": (
        "93689298a27331a27332c4020303a27334a2733592930692930708099308090a929308090a93090a0b9307929308090a"
        "93090a0b9293090a0b930a0b0c92070892080998a27332a27333c4020404a27335a27336929307929308090a93090a0b"
        "9293090a0b930a0b0c93089293090a0b930a0b0c92930a0b0c930b0c0d92080992090a9294a27332a27333c4020404a2"
        "733594a27333a27334c4020505a27336"
    ),
    "DropTable": "9469a27331a27332c4020303",
    "RenameTable": "966aa27331a27332c4020303a27334a27335",
    "DeclareTable": "966bc402010102a27333a27334c3",
    "BeginSinkTask": "976ea27331a2733203a2733405c3",
    "CommitSinkBatch": "966fa27331a27332039293a27334050693a273350607c3",
    "AbortSinkBatch": "9470a27331a27332c3",
    "ForgetSinks": "92719292a273310292a2733203",
    "ExtendSinkRun": "9372a27331a27332",
    "JoinBroker": "967801029292a27333a2733492a27334a27335a27334a27335",
    "Heartbeat": "93790102",
    "LeaveBroker": "937a0102",
    "ExpireBroker": "947b010203",
    "AdmitBroker": "947c01a27332a27333",
    "PutScramCredential": "97cc82a2733102c402030304c4020505c4020606",
    "DeleteScramCredential": "93cc83a2733102",
    "PutAccessRules": "92cc84929701a2733203a27334a2733506079702a2733304a27335a273360708",
    "DeleteAccessRules": "92cc85929701a2733203a27334a2733506079702a2733304a27335a273360708",
    "AlterRate": (
        "94cc8695a27331a27332a27333a27334a273359292a27332cb400c00000000000092a27333cb401200000000000092a27333a27334"
    ),
    "AlterGroupSettings": "94cc87a273319292a27332a2733392a27333a2733492a27333a27334",
    "OpenShare": "94cc88a2733192920203920304c3",
    "AcquireShare": "9ccc89a2733102a273330405060708090ac3",
    "SettleShare": "97cc8aa2733102a273339293040506930506070506",
    "DeleteShare": "93cc8ba27331920203",
    "PublishRepack": "96cc8c010292a27333a273349294a2733405060794a273350607089294050607089406070809",
    "ForgetRepacked": "92cc8d92a27331a27332",
    "PlanTier": "94cc8f01c402020203",
    "SettleTier": "94cc9001c4020202c3",
    "ForgetTier": "93cc9101c4020202",
    "KeepReport": "94cc96a27331a27332c4020303",
    "BumpGeneration": "94cc97a273310292a27333a27334",
    "ChangeConsumerGroup": (
        "98cc98a2733102030492dc0011a273350607a27338a27339a3733130a37331310c92a3733133a3733134a3733134a373"
        "31359292c402101092111292c40211119212139292c402111192121392c40212129213149292c402121292131492c402"
        "1313921415139292a3733230c402151592a3733231c402161694a37332311692a3733233189292a3733234a373323592"
        "a3733235a3733236dc0011a273360708a27339a3733130a3733131a37331320d92a3733134a3733135a3733135a37331"
        "369292c402111192121392c40212129213149292c402121292131492c40213139214159292c402131392141592c40214"
        "14921516149292a3733231c402161692a3733232c402171794a37332321792a3733234199292a3733235a373323692a3"
        "733236a373323792a27336a2733792079296a2733892a27339a37331309294a37331300b9292a3733132a373313392a3"
        "733133a37331340d94a37331310c9292a3733133a373313492a3733134a37331350e92a3733131a37331329294a37331"
        "320d9292a3733134a373313592a3733135a37331360f94a37331330e9292a3733135a373313692a3733136a373313710"
        "9292a3733133a373313492a3733134a373313596a2733992a3733130a37331319294a37331310c9292a3733133a37331"
        "3492a3733134a37331350e94a37331320d9292a3733134a373313592a3733135a37331360f92a3733132a37331339294"
        "a37331330e9292a3733135a373313692a3733136a37331371094a37331340f9292a3733136a373313792a3733137a373"
        "3138119292a3733134a373313592a3733135a3733136"
    ),
    "ForgetConsumerGroup": "93cc99a2733102",
    "AlterBrokerSettings": "93cc9a9292a27331a2733292a27332a2733392a27332a27333",
    "DeleteApiKey": "92cca2a27331",
    "PutApiKey": (
        "92cca09ba27331a27332c4020303c40204040592a27336a27337929707a2733809a3733130a37331310c0d9708"
        "a273390aa3733131a37331320d0ea27338090a0b"
    ),
    "RotateApiKey": "95cca1a27331c4020202c402030304",
    "AddNamespace": (
        "93ccaaa27331dc0019020304a56673796e630692a27337a2733808090ac30c0db9636f6e73756d65725f6261636b6c6f"
        "675f6576696374696f6e0fb9636f6e73756d65725f6261636b6c6f675f6576696374696f6ec31213141516171819d923"
        "64656c6574655f7768656e5f737562736372697074696f6e735f6361756768745f7570"
    ),
    "AlterNamespace": (
        "93ccaba27331dc0019020304a56673796e630692a27337a2733808090ac30c0db9636f6e73756d65725f6261636b6c6f"
        "675f6576696374696f6e0fb9636f6e73756d65725f6261636b6c6f675f6576696374696f6ec31213141516171819d923"
        "64656c6574655f7768656e5f737562736372697074696f6e735f6361756768745f7570"
    ),
    "RemoveNamespace": "92ccaca27331",
    "RegisterSchema": (
        "9bccd201a27332a27333a27334a273359293a27336a273370893a27337a2733809a27337c4020808090a"
    ),
    "DeleteSchemaVersions": "95ccd301a27332920304c3",
    "PutRegistrySettings": "93ccd40193a27332a27333a27334",
    "AddBucket": "92cce694a27331a2733203a27334",
    "AlterBucket": "93cce7a27331a27332",
    "BeginUpload": (
        "92cceb98a27331a27332a2733304a273359292a27336a2733792a27337a27338a27337929608a273390aa37331"
        "310ca37331339609a37331300ba37331320da3733134"
    ),
    "CompleteUpload": (
        "95cceda2733192020398a273330405a273369292a273370892a27338099292a27338a2733992a27339a3733130"
        "a27339c393c3a27335a27336"
    ),
    "DeleteObject": (
        "96cceaa27331a27332a2733398a273340506a273379292a273380992a273390a9292a27339a373313092a37331"
        "30a3733131a3733130c393c3a27336a27337"
    ),
    "EndUpload": "92cceea27331",
    "PutObject": (
        "95cce9a27331a2733298a273330405a273369292a273370892a27338099292a27338a2733992a27339a3733130"
        "a27339c393c3a27335a27336"
    ),
    "PutUploadPart": "93cceca273319602a2733304a2733506a27337",
    "RemoveBucket": "92cce8a27331",
    "FinishCompaction": "93cc8e019294020304059403040506",
    "AckRecords": "96ccf101a27332039292040592050605",
    "AddSubscription": "95ccf001a27332039292a27334a2733592a27335a27336",
    "MoveSubscription": "95ccf201a273320304",
    "ServeSubscription": "94cd011801a2733203",
    "RemoveSubscription": "93ccf301a27332",
    "PutSubscriptionProperties": "94ccf901a273329292a27333a2733492a27334a27335",
    "RegisterTopicSchema": "93ccf60194a2733203c40204049292a27335a2733692a27336a27337",
    "RemoveTopicSchemas": "92ccf701",
    "AcceptErasure": "94ccb4a27331a577686572659294c4020303a27334a273350694c4020404a27335a2733607",
    "AdvanceErasure": "96ccb6a27331a66661696c656403c4020404a27335",
    "CountErased": "94ccb5a27331c402020203",
    "NoteBackup": "92ccb7a27331",
    "ExpireRecords": "92cd017301",
    "TimeRecords": "93cd0172019294020304059403040506",
}

# Of the state that test_checkpoint.py builds: the head, and a hash of the body.
GOLDEN_CHECKPOINT = "4d53544d4c4544470200000002000000ae0fa22da497339bc922b7e12884f32dea11f45a2bf9126b"


def test_every_command_has_golden_bytes() -> None:
    commands = {command.__name__: command for command in REGISTRY.commands.values()}
    lacking = [
        f'"{name}": "{encode_command(example(command)).hex()}",'
        for name, command in commands.items()
        if name not in GOLDEN
    ]
    assert not lacking, "GOLDEN lacks " + " ".join(lacking)
    assert set(GOLDEN) == set(commands)


@pytest.mark.parametrize("command", REGISTRY.commands.values(), ids=lambda command: str(command.__name__))
def test_commands_of_version_1_stay_readable_and_unchanged(command: type[Any]) -> None:
    golden = bytes.fromhex(GOLDEN[command.__name__])
    assert encode_command(example(command)) == golden
    assert decode_command(golden) == example(command)


def test_a_checkpoint_has_the_same_bytes_on_every_machine() -> None:
    assert FULL[:24].hex() + blake2b(FULL[40:], digest_size=16).hexdigest() == GOLDEN_CHECKPOINT
