"""Bytes of MRC frames and their meaning; knows no path, no state, no clock.

Owns every bit position: headers (`headers`), PSN arithmetic (`psn`), entropy placement (`ev`), uSID lists (`srv6`), the
invariant CRC (`icrc`). Two codecs share them: `frame` says everything about a frame, slowly; `fast` says what a NIC
needs, in a few microseconds. `switching` is what switches do to a frame. Read `layout` first.
"""
