"""How long to wait before a process is started again: longer with each time it ends in a row. Pure."""

FIRST_S = 0.2
MAX_S = 10.0
_DOUBLINGS_MAX = 16  # far beyond the longest wait, and far from an overflow


def delay_s(ends: int) -> float:
    """Tell how long to wait after `ends` ends in a row."""
    return min(MAX_S, FIRST_S * 2.0 ** min(max(ends - 1, 0), _DOUBLINGS_MAX))
