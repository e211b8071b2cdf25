"""The hot path, in one import: building and reading standard frames in a few microseconds each.

`fast_build` makes frames, `fast_parse` reads them, `fast_ext` packs and reads extension headers. Meaning is the same as
in `frame`, which the tests hold them to. The layout is in `layout`.
"""

from __future__ import annotations

from mrcemu.wire.fast_build import FrameTemplate, build_control, build_data
from mrcemu.wire.fast_ext import (
    aeth_fields,
    data_fields,
    eeth_fields,
    erth_fields,
    immediate,
    nack_fields,
    pack_aeth,
    pack_eeth,
    pack_erth,
    pack_nack,
    pack_peth,
    pack_sack,
    peth_fields,
    sack_fields,
    trimmed_fields,
)
from mrcemu.wire.fast_parse import FrameParser, Received
from mrcemu.wire.layout import EXT_OFFSET, FLAG_ACKREQ, FLAG_RTX
from mrcemu.wire.opcodes import TRIMMED, TRIMMED_LASTHOP, UNTRIMMED

__all__ = [
    "EXT_OFFSET", "FLAG_ACKREQ", "FLAG_RTX", "TRIMMED", "TRIMMED_LASTHOP", "UNTRIMMED", "FrameParser", "FrameTemplate",
    "Received", "aeth_fields", "build_control", "build_data", "data_fields", "eeth_fields", "erth_fields", "immediate",
    "nack_fields", "pack_aeth", "pack_eeth", "pack_erth", "pack_nack", "pack_peth", "pack_sack", "peth_fields",
    "sack_fields", "trimmed_fields",
]  # fmt: skip
