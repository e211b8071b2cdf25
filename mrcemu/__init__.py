"""mrcemu: a packet-level emulator of MRC (Multipath Reliable Connection). Start with docs/architecture.md."""

__version__ = "0.1.0"
