"""The few things of Linux that fabric, endpoint and capture all need. Owns no policy."""
