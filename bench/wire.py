"""What a frame costs to build and to read: the hot path against the plain codec and against scapy, in one run.

Prints microseconds of CPU a frame, best of several rounds. `payload_work` is the iCRC and the copy of 4 KiB, which no
codec avoids; `without_payload_work` is the hot path less that.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable

from scapy.layers.l2 import Ether

from mrcemu.wire import fast, scapy_layers
from mrcemu.wire.frame import emit_frame, parse_frame
from mrcemu.wire.opcodes import Opcode

ROUNDS = 15
PAYLOAD = memoryview(bytearray(range(256)) * 16)
SRC = bytes.fromhex("fd4d5243000000000000000000000001")
DST = bytes.fromhex("fd4d5243000000000000000000000006")
OUTER_DST = bytes.fromhex("fcbbbbbb4400840344014401" + "00" * 4)
SLOW, FAST = 50, 5000  # calls a round


def cpu_us(call: Callable[[], object], calls: int) -> float:
    """Microseconds of CPU a call, the best round: the others were disturbed."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time_ns()
        for _ in range(calls):
            call()
        best = min(best, time.process_time_ns() - started)
    return best / calls / 1000


def template() -> fast.FrameTemplate:
    return fast.FrameTemplate(
        dst_mac=b"\x02" * 6, src_mac=b"\x04" * 6, outer_src=SRC, outer_dst=OUTER_DST, inner_src=SRC, inner_dst=DST,
        ev=0x31, dscp=8,
    )  # fmt: skip


def builders() -> dict[str, Callable[[], bytes]]:
    """How the endpoint builds its two commonest frames."""
    one, opcode, sack = template(), int(Opcode.WRITE_MIDDLE), int(Opcode.SACK)

    def build_data() -> bytes:
        return fast.build_data(one, opcode, 77, 5, 0, 0, 1, 999, 0x1000, 7, 1 << 20, PAYLOAD)

    def build_sack() -> bytes:
        ext = fast.pack_sack(
            mark=0, ack_psn_offset=7, entropy=0x31, cack_psn=4, sack_offset=1, bitmap=0x76, tx_timestamp=5, ooo_count=5,
            rcvd_units=9,
        )  # fmt: skip
        return fast.build_control(one, sack, 77, 4, ext)

    return {"data_4096": build_data, "sack": build_sack}


def payload_work(frame: bytes) -> dict[str, float]:
    """The iCRC over a frame's inner packet, and the copy into the frame, by themselves."""
    body, head = memoryview(frame)[107:], frame[:138]
    return {
        "crc_us": cpu_us(lambda: zlib.crc32(body, 5), FAST),
        "copy_us": cpu_us(lambda: b"".join((head, PAYLOAD)), FAST) if len(frame) > len(PAYLOAD) else 0.0,
    }


def measure(build: Callable[[], bytes]) -> dict[str, dict[str, float]]:
    """Building and reading one kind of frame three ways."""
    frame, parser = build(), fast.FrameParser(DST)
    packet, layers = parse_frame(frame), Ether(frame)
    floor = payload_work(frame)
    figures: dict[str, dict[str, float]] = {"payload_work": floor}
    rows = {
        "build": (build, lambda: emit_frame(packet), lambda: _scapy_build(layers), floor["crc_us"] + floor["copy_us"]),
        "parse": (lambda: parser.parse(frame), lambda: parse_frame(frame), lambda: Ether(frame), floor["crc_us"]),
    }
    for name, (hot, plain, scapy, unavoidable) in rows.items():
        hot_us, plain_us, scapy_us = cpu_us(hot, FAST), cpu_us(plain, SLOW * 4), cpu_us(scapy, SLOW)
        figures[name] = {
            "hot_us": hot_us,
            "without_payload_work_us": hot_us - unavoidable,
            "plain_us": plain_us,
            "scapy_us": scapy_us,
            "plain_over_hot": plain_us / hot_us,
            "scapy_over_hot": scapy_us / hot_us,
        }
    return figures


def _scapy_build(layers: Ether) -> bytes:
    """Build for good: a dissected packet would only give its bytes back."""
    copy = layers.copy()
    copy[scapy_layers.MrcBth].icrc = None
    return bytes(copy)


def ratios(figures: dict[str, dict[str, dict[str, float]]]) -> list[dict[str, object]]:
    """The hot path against the plain codec and against scapy, for every kind of frame."""
    return [
        {
            "what": f"{step} {kind}, reference: {reference}",
            "ours": steps[step]["hot_us"],
            "reference": steps[step][f"{reference}_us"],
            "unit": "us CPU",
            "ratio": steps[step]["hot_us"] / steps[step][f"{reference}_us"],
        }
        for kind, steps in figures.items()
        for step in ("build", "parse")
        for reference in ("plain", "scapy")
    ]


def main() -> None:
    """Print one JSON document."""
    figures = {name: measure(build) for name, build in builders().items()}
    rounded = {
        kind: {step: {key: round(value, 2) for key, value in row.items()} for step, row in steps.items()}
        for kind, steps in figures.items()
    }
    print(json.dumps({"ratios": ratios(figures), "detail": rounded}, indent=1))


if __name__ == "__main__":
    main()
